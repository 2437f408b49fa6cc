"""Apply random histories to the model and to the real coordinator, which must answer in the same way and keep right
counts."""

from __future__ import annotations

import asyncio
import struct
from operator import attrgetter
from typing import Any

import pytest
import redis as blocking_redis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator import redis as coordinator_redis
from proxy.coordinator import rewriting, shard_calls
from proxy.coordinator.cluster import primaries
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import (
    BatchAnswer,
    DeleteRequest,
    FindRequest,
    ListRequest,
    LogAnswer,
    PartitionRun,
    ProposedBatch,
    RetainRequest,
    Row,
    RunAnswer,
)
from proxy.coordinator.interface_rewriting import Swap
from proxy.coordinator.interface_transactions import NOT_TRANSACTIONAL
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import partition_key, shard_of, shard_prefix
from tests.coordinator_model import ModelCoordinator, wall_clock_ms
from tests.integration.coordinator.clusters import StoreCluster, slot_of
from tests.integration.coordinator.conftest import Store
from tests.tiers import Tier

SHARDS = 2
TOPICS = [bytes([number]) * 16 for number in (1, 2)]
PARTITIONS = range(3)
LOGS = [(topic_id, partition) for topic_id in TOPICS for partition in PARTITIONS]
EXAMPLES_OF_TIER = {Tier.QUICK: 10, Tier.FULL: 60}

STEP_MS = 100_000
"""Milliseconds between two timestamps: far more than the difference between the clocks of model and store."""
timestamps = st.one_of(st.integers(-2, -1), st.integers(0, 20).map(lambda step: step * STEP_MS))
sequences = st.one_of(st.integers(0, 12), st.integers(2**31 - 6, 2**31 - 1))
loose_batches = st.builds(
    ProposedBatch,
    length=st.integers(1, 100),
    record_count=st.integers(1, 4),
    max_timestamp_ms=timestamps,
    producer_id=st.sampled_from([-1, 0, 5, 2**62 + 1]),
    producer_epoch=st.integers(0, 2),
    base_sequence=sequences,
    transaction_version=st.just(NOT_TRANSACTIONAL),
    markers_from=st.just(-1),
)


MEMBER_OVERHEAD_BYTES = 66
"""Bytes that the counts add to the length of an index's member."""
ROWS_AT = 20
"""Position of the rows and bytes of the indexes in a shard's state."""


def without_times(answer: RunAnswer | LogAnswer) -> RunAnswer | LogAnswer:
    """Remove append times: the two stores' clocks differ; whether there is an append time does not."""
    if isinstance(answer, LogAnswer):
        return answer._replace(rows=tuple(row._replace(append_time_ms=0) for row in answer.rows))
    return answer._replace(batches=tuple(_without_time(batch) for batch in answer.batches))


def _without_time(batch: BatchAnswer) -> BatchAnswer:
    return batch._replace(append_time_ms=min(batch.append_time_ms, 0))


class Histories(RuleBasedStateMachine):
    store: Store
    settle_ms = 3_000

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.empty()
        self.settings = config.Redis(url=self.url, shards=SHARDS, settle_ms=self.settle_ms)
        self.client: Redis = self.loop.run_until_complete(connect(self.settings))
        self.real = self.make_real()
        self.model = ModelCoordinator()
        self.segments = 0
        self.ever_used: set[tuple[int, bytes]] = set()
        self.committed: list[tuple[bytes, list[PartitionRun]]] = []
        self.swaps: list[tuple[Swap, Swap]] = []
        """Swaps of the real coordinator and of the model, whose clocks differ."""
        self.next_sequence: dict[tuple[bytes, int, int], int] = {}
        for topic_id in TOPICS:
            self.both("create_logs", topic_id, PARTITIONS)

    @property
    def url(self) -> str:
        return self.store.url

    def empty(self) -> None:
        with blocking_redis.Redis(port=self.store.port) as client:
            client.flushall()

    def make_real(self) -> RedisCoordinator:
        return RedisCoordinator(
            self.client, self.settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
        )

    def teardown(self) -> None:
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()

    def answered(self, method: str, *arguments: object) -> Any:
        """Return the real coordinator's answer."""
        return self.loop.run_until_complete(attrgetter(method)(self.real)(*arguments))

    def both(self, method: str, *arguments: object) -> list[RunAnswer]:
        real = self.answered(method, *arguments)
        model = self.loop.run_until_complete(attrgetter(method)(self.model)(*arguments))
        if method in ("commit", "find"):
            assert [without_times(answer) for answer in real] == [without_times(answer) for answer in model]
        else:
            assert real == model
        if method == "commit":
            self.ever_used |= self.use().keys()
        return real  # type: ignore[no-any-return]

    def use(self) -> dict[tuple[int, bytes], list[int]]:
        """Return live bytes and rows, by shard and segment."""
        used: dict[tuple[int, bytes], list[int]] = {}
        for log, kept in self.model.logs.items():
            for row in filter(attrgetter("length"), kept.rows):
                use = used.setdefault((shard_of(partition_key(*log), SHARDS), row.segment), [0, 0])
                use[0] += row.length
                use[1] += 1
        return used

    @rule(
        chosen=st.lists(st.sampled_from(LOGS), min_size=1, max_size=6, unique=True),
        batches=st.lists(st.lists(loose_batches, min_size=1, max_size=4), min_size=6, max_size=6),
        orderly=st.booleans(),
    )
    def commit(self, chosen: list[tuple[bytes, int]], batches: list[list[ProposedBatch]], orderly: bool) -> None:
        self.segments += 1
        segment = self.segments.to_bytes(16, "big")
        runs = []
        for (topic_id, partition), run_batches in zip(chosen, batches, strict=False):
            proposed = [self.in_order(topic_id, partition, batch) if orderly else batch for batch in run_batches]
            runs.append(PartitionRun(topic_id, partition, 1, tuple(proposed)))
        self.both("commit", segment, runs)
        self.committed.append((segment, runs))

    def in_order(self, topic_id: bytes, partition: int, batch: ProposedBatch) -> ProposedBatch:
        """Return the batch as a well-behaved producer of its own would send it."""
        sequence = self.next_sequence.get((topic_id, partition, 77), 0)
        self.next_sequence[topic_id, partition, 77] = sequence + batch.record_count
        return batch._replace(producer_id=77, producer_epoch=0, base_sequence=sequence)

    @rule(choice=st.randoms(use_true_random=False))
    def retry_in_another_order_and_split(self, choice) -> None:
        for segment, runs in choice.sample(self.committed, min(3, len(self.committed))):
            shuffled = choice.sample(runs, len(runs))
            cut = choice.randint(0, len(runs))
            self.both("commit", segment, shuffled[:cut])
            self.both("commit", segment, shuffled[cut:])

    @rule(topic_id=st.sampled_from(TOPICS), partitions=st.sets(st.sampled_from(PARTITIONS)))
    def delete(self, topic_id: bytes, partitions: set[int]) -> None:
        self.both("delete_logs", topic_id, sorted(partitions))

    @rule(topic_id=st.sampled_from(TOPICS))
    def create(self, topic_id: bytes) -> None:
        self.both("create_logs", topic_id, PARTITIONS)

    @rule(log=st.sampled_from(LOGS), offset=st.integers(-1, 60), max_bytes=st.integers(0, 500))
    def find(self, log: tuple[bytes, int], offset: int, max_bytes: int) -> None:
        self.both("find", [FindRequest(*log, offset, max_bytes)])

    @rule(
        log=st.sampled_from(LOGS),
        asked=st.lists(st.one_of(timestamps, st.just(-3)), max_size=8),
        from_offset=st.one_of(st.just(0), st.integers(0, 40)),
    )
    def list_offsets(self, log: tuple[bytes, int], asked: list[int], from_offset: int) -> None:
        self.both("list_offsets", [ListRequest(*log, timestamp, from_offset) for timestamp in asked])

    @rule(wanted=st.lists(st.tuples(st.sampled_from(LOGS), st.integers(-3, 40)), max_size=4))
    def delete_records(self, wanted: list[tuple[tuple[bytes, int], int]]) -> None:
        self.both("delete_records", [DeleteRequest(*log, before) for log, before in dict(wanted).items()])

    @rule(
        wanted=st.dictionaries(st.sampled_from(LOGS), st.integers(-1, 400), max_size=4),
        steps=st.integers(-1, 20),
    )
    def retain(self, wanted: dict[tuple[bytes, int], int], steps: int) -> None:
        """Apply retention by size and by time: rows older than `steps` steps are removed."""
        retention_ms = wall_clock_ms() - steps * STEP_MS - STEP_MS // 2 if steps >= 0 else -1
        requests = [RetainRequest(*log, retention_ms, size, False) for log, size in wanted.items()]
        self.both("retain", requests)

    @rule(limit=st.integers(1, 5))
    def collect_garbage(self, limit: int) -> None:
        """Tombstone unused segments and one that is in use; then release the tombstones, or not yet."""
        garbage = self.loop.run_until_complete(self.real.garbage(0, limit))
        in_use = sorted(self.model.used_bytes())[:1]
        self.both("tombstone", [*garbage, *(segment for segment in in_use if segment not in garbage)])

    @rule()
    def delete_objects(self) -> None:
        tombstoned = self.both("tombstoned", 0, 1000)
        self.both("release", tombstoned)

    @rule(
        log=st.sampled_from(LOGS), batches=st.lists(loose_batches, min_size=2, max_size=6), retain=st.integers(-1, 400)
    )
    def fill_and_pack(self, log: tuple[bytes, int], batches: list[ProposedBatch], retain: int) -> None:
        """Write enough rows for packs, and move the log start into one of them."""
        for batch in batches:
            self.segments += 1
            run = PartitionRun(*log, 1, (batch._replace(producer_id=-1),))
            self.both("commit", self.segments.to_bytes(16, "big"), [run])
        self.both("pack_rows", [log], 0)
        self.both("retain", [RetainRequest(*log, -1, retain, False)])
        self.both("list_offsets", [ListRequest(*log, step * STEP_MS) for step in range(21)])
        kept = self.model.logs.get(log)
        if kept:
            self.both("find", [FindRequest(*log, offset, 1) for offset in range(kept.start, kept.end)])

    @rule(
        log=st.sampled_from(LOGS),
        kind=st.sampled_from(["merge", "merge", "compact", "remove", "stale"]),
        choice=st.randoms(use_true_random=False),
    )
    def replace(self, log: tuple[bytes, int], kind: str, choice) -> None:
        """Replace several ranges of a log at once, some of which may overlap; also with rows that never existed."""
        self.swap([self.a_swap(log, kind, choice) for _ in range(choice.randint(1, 3))])

    @rule(choice=st.randoms(use_true_random=False))
    def repeat_swaps(self, choice) -> None:
        self.swap(choice.sample(self.swaps, min(3, len(self.swaps))))

    def swap(self, swaps: list[tuple[Swap, Swap] | None]) -> None:
        made = [pair for pair in swaps if pair is not None]
        real = self.answered("rows.replace", [pair[0] for pair in made])
        assert real == self.loop.run_until_complete(self.model.rows.replace([pair[1] for pair in made]))
        self.swaps += [pair for pair in made if pair not in self.swaps]
        self.ever_used |= self.use().keys()

    def a_swap(self, log: tuple[bytes, int], kind: str, choice) -> tuple[Swap, Swap] | None:
        kept = self.model.logs.get(log)
        if kept is None or not kept.rows:
            return None
        (found,) = self.loop.run_until_complete(self.real.find([FindRequest(*log, kept.start, 1 << 40)]))
        first = choice.randrange(len(kept.rows))
        count = choice.randint(1, len(kept.rows) - first)
        old = [tuple(rows[first : first + count]) for rows in (found.rows, tuple(kept.rows))]
        self.segments += 1
        segment = choice.choice([self.segments.to_bytes(16, "big"), *sorted(self.model.tombstones)[:1]])
        base, last = old[0][0].base_offset, old[0][-1].last_offset
        newest = max(row.max_timestamp_ms for row in old[0])
        length = choice.randint(1, 300)
        if kind == "compact":
            base, newest = choice.randint(base, last), choice.choice([one.max_timestamp_ms for one in old[0]])
            last = choice.randint(base, last)
        if kind == "stale":
            old = [tuple(row._replace(position=row.position + 1) for row in rows) for rows in old]
        news: list[Row | None] = [
            Row(
                base,
                last,
                segment,
                1,
                length,
                newest,
                max(row.append_time_ms for row in rows),
                offsets_in_place=True,
            )
            for rows in old
        ]
        if kind == "remove":
            news = [None, None]
        real, model = (Swap(*log, rows, new) for rows, new in zip(old, news, strict=True))
        return real, model

    @rule(marks=st.dictionaries(st.sampled_from(LOGS), st.integers(-1, 60), max_size=3))
    def mark_compacted(self, marks: dict[tuple[bytes, int], int]) -> None:
        self.both("rows.mark_compacted", [(*log, offset) for log, offset in marks.items()])
        self.both("rows.compacted", LOGS)

    @rule(logs=st.sets(st.sampled_from(LOGS), min_size=1))
    def pack(self, logs: set[tuple[bytes, int]]) -> None:
        """Pack rows; this changes no answer."""
        self.both("pack_rows", sorted(logs), 0)

    @rule()
    def lose_the_scripts(self) -> None:
        self.loop.run_until_complete(self._flush_scripts())

    async def _flush_scripts(self) -> None:
        for server in (await primaries(self.client)).values():
            await server.script_flush()

    @invariant()
    def figures_agree(self) -> None:
        for topic_id in TOPICS:
            self.both("describe", topic_id, PARTITIONS)

    @invariant()
    def each_offset_is_there_once_and_none_beyond_the_high_watermark(self) -> None:
        """Offsets that compaction has left out are the exception."""
        starts = [log.start if log else 0 for log in map(self.model.logs.get, LOGS)]
        requests = [FindRequest(*log, start, 1 << 40) for log, start in zip(LOGS, starts, strict=True)]
        swapped = {(swap.topic_id, swap.partition) for swap, _ in self.swaps}
        for log, answer in zip(LOGS, self.loop.run_until_complete(self.real.find(requests)), strict=True):
            offsets = [offset for row in answer.rows for offset in range(row.base_offset, row.last_offset + 1)]
            readable = [offset for offset in offsets if offset >= answer.log_start_offset]
            ends = range(max(answer.log_start_offset, 0), max(answer.high_watermark, 0))
            assert readable == (sorted(set(readable) & set(ends)) if log in swapped else list(ends))

    @invariant()
    def pages_of_the_index_are_the_log_and_running_maxima_never_fall(self) -> None:
        for log in LOGS:
            page = self.loop.run_until_complete(self.real.rows.index_page(*log, 0))
            rows, next_offset = list(page.rows), page.next_offset
            while next_offset >= 0:
                more = self.loop.run_until_complete(self.real.rows.index_page(*log, next_offset))
                rows, next_offset = [*rows, *more.rows], more.next_offset
            expected = self.loop.run_until_complete(self.model.rows.index_page(*log, 0))
            assert page.log == expected.log
            found = [one.row._replace(append_time_ms=0) for one in rows]
            assert found == [one.row._replace(append_time_ms=0) for one in expected.rows]
            maxima = [one.running_maximum_ms for one in rows]
            assert maxima == sorted(maxima)
            assert all(one.running_maximum_ms >= one.row.max_timestamp_ms for one in rows)
            assert page.log is None or not maxima or page.log.max_timestamp_ms >= maxima[-1]

    @invariant()
    def books_are_kept(self) -> None:
        """Used bytes are the sum of live rows, by segment and shard; exactly the unused segments are garbage."""
        used = self.use()
        found: dict[tuple[int, bytes], list[int]] = {}
        garbage: set[tuple[int, bytes]] = set()
        rows, index_bytes = 0, 0
        for shard in range(SHARDS):
            prefix = shard_prefix(shard)
            for segment, use in self.loop.run_until_complete(self.client.hgetall(f"{prefix}segments")).items():
                found[shard, segment] = list(struct.unpack(">qI", use))
            unused = self.loop.run_until_complete(self.client.zrange(f"{prefix}garbage", 0, -1))
            garbage |= {(shard, segment) for segment in unused}
            state = self.loop.run_until_complete(self.client.hget(f"{prefix}meta", "state"))
            rows_of_shard, bytes_of_shard = struct.unpack_from(">QQ", state, ROWS_AT) if state else (0, 0)
            rows, index_bytes = rows + rows_of_shard, index_bytes + bytes_of_shard
        assert found == used
        # A segment that another shard still uses may have left a shard's garbage; an unused segment never leaves all of
        # them.
        assert garbage <= self.ever_used - used.keys()
        assert {segment for _, segment in garbage} >= self.model.unused
        assert rows == sum(len(kept.rows) for kept in self.model.logs.values())
        assert index_bytes == sum(len(member) + MEMBER_OVERHEAD_BYTES for member in self.members())

    def members(self) -> list[bytes]:
        """Return the members of all indexes: rows and packs of rows."""
        members = []
        for shard in range(SHARDS):
            members += self.loop.run_until_complete(self.client.zrange(f"{shard_prefix(shard)}rows", 0, -1))
        return members


def cut_calls_small(monkeypatch) -> None:
    """Set small limits, so that calls are split, and deletions and packing take several."""
    monkeypatch.setattr(shard_calls, "MAX_ITEMS_PER_CALL", 2)
    monkeypatch.setattr(shard_calls, "MAX_BATCHES_PER_CALL", 5)
    monkeypatch.setattr(coordinator_redis, "MAX_ROWS_PER_DELETE_CALL", 2)
    monkeypatch.setattr(coordinator_redis, "FEWEST_ROWS_PER_PACK", 2)
    monkeypatch.setattr(coordinator_redis, "MOST_ROWS_PER_PACK", 4)
    monkeypatch.setattr(coordinator_redis, "MAX_ROWS_PER_PACK_CALL", 4)
    monkeypatch.setattr(rewriting, "MAX_ROWS_PER_PAGE", 3)
    monkeypatch.setattr(rewriting, "MAX_ITEMS_PER_CALL", 2)


@pytest.mark.timeout(300)
def test_random_histories(store: Store, monkeypatch, pytestconfig: pytest.Config) -> None:
    cut_calls_small(monkeypatch)
    Histories.store = store
    examples = EXAMPLES_OF_TIER[pytestconfig.getoption("tier")]
    run_state_machine_as_test(
        Histories,
        settings=hypothesis_settings(max_examples=examples, stateful_step_count=25, deadline=None, database=None),
    )


class HistoriesOnACluster(Histories):
    """The same on three primaries, between which slots move meanwhile."""

    cluster: StoreCluster
    settle_ms = 0

    @property
    def url(self) -> str:
        return self.cluster.url

    def empty(self) -> None:
        self.cluster.empty()

    @rule(shard=st.integers(0, SHARDS - 1))
    def move(self, shard: int) -> None:
        self.cluster.move(slot_of(shard))


@pytest.mark.timeout(300)
def test_random_histories_on_a_cluster(cluster: StoreCluster, monkeypatch, pytestconfig: pytest.Config) -> None:
    cut_calls_small(monkeypatch)
    HistoriesOnACluster.cluster = cluster
    run_state_machine_as_test(
        HistoriesOnACluster,
        settings=hypothesis_settings(
            max_examples=EXAMPLES_OF_TIER[Tier.QUICK] // 2,
            stateful_step_count=25,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
