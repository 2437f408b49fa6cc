"""The growth since the last rollup: the differences of the process's counters, by the hour they belong to.

The counters are those of `/metrics`, so that sums of rollups equal the metrics. They begin with 0 when the process
does, and so do the differences: a restart counts nothing twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from proxy.accounting.rollups.table import HOUR_MS, Measure, RollupRow
from proxy.coordinator.redis import RedisCoordinator
from proxy.diskless.cache import BlockCache
from proxy.telemetry.stats import OTHER_TOPICS, Stats


class What(NamedTuple):
    """The labels of a row: what a counter counts."""

    measure: Measure
    kind: str
    direction: str
    client_rack: str = ""
    serving_rack: str = ""
    topic: str = ""


class Amount(NamedTuple):
    """How much."""

    bytes: int
    requests: int = 0


def totals(
    stats: Stats, coordinator: RedisCoordinator, caches: Collection[BlockCache]
) -> Iterator[tuple[What, Amount]]:
    """Yield all counters as they stand; records whose topic is not settled yet come with the next ones."""
    for (kind, direction, client_rack, serving_rack, topic), size in list(stats.record_bytes.items()):
        yield What(Measure.RECORDS, kind, direction, client_rack, serving_rack, topic), Amount(size)
    for (client_rack, serving_rack), size in list(stats.near_read_bytes.items()):
        yield What(Measure.NEAR_READS, "classic", "fetch", client_rack, serving_rack), Amount(size)
    puts = sum(stats.segment_bytes.counts) + stats.upload_failures + stats.uploads_hedged
    yield What(Measure.PUTS, "diskless", "produce"), Amount(int(stats.segment_bytes.total), puts)
    gets = Amount(sum(cache.bytes_read for cache in caches), sum(cache.get_count for cache in caches))
    yield What(Measure.GETS, "diskless", "fetch"), gets
    yield What(Measure.COORDINATION, "diskless", "sent"), Amount(coordinator.bytes_sent)
    yield What(Measure.COORDINATION, "diskless", "received"), Amount(coordinator.bytes_received)


class Counted:
    """The growth that has not been written yet. Its memory is bounded as that of the counters is."""

    def __init__(self) -> None:
        self._before: dict[What, Amount] = {}
        self._open: defaultdict[tuple[int, What], list[int]] = defaultdict(lambda: [0, 0])

    def add(self, now: Iterable[tuple[What, Amount]], hour_ms: int) -> None:
        """Add the growth of the counters to the hour; a counter that fell has begun again."""
        for what, amount in now:
            before = self._before.get(what, Amount(0))
            if amount.bytes < before.bytes or amount.requests < before.requests:
                before = Amount(0)
            if amount != before:
                counted = self._open[hour_ms, what]
                counted[0] += amount.bytes - before.bytes
                counted[1] += amount.requests - before.requests
            self._before[what] = amount

    def take(self, proxy: str, rack: str, *, max_rows: int) -> list[RollupRow]:
        """Return the rows to write now, the largest `max_rows` of them; the rest is summed up as other topics'."""
        rows, self._open = self._open, defaultdict(lambda: [0, 0])
        if len(rows) > max_rows:
            by_size = sorted(rows.items(), key=lambda row: row[1], reverse=True)
            rows = defaultdict(lambda: [0, 0], by_size[:max_rows])
            for (hour_ms, what), (size, requests) in by_size[max_rows:]:
                sums = rows[hour_ms, what._replace(topic=OTHER_TOPICS) if what.topic else what]
                sums[0] += size
                sums[1] += requests
        return [
            RollupRow(hour_ms, proxy, rack, what.measure.value, what.kind, what.direction, *_texts(what), *sums)
            for (hour_ms, what), sums in sorted(rows.items())
        ]


def hour_of(time_ms: int) -> int:
    """The beginning of its hour."""
    return time_ms - time_ms % HOUR_MS


def _texts(what: What) -> tuple[str, str, str]:
    return what.client_rack, what.serving_rack, what.topic
