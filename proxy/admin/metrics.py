"""The proxy's counters under Prometheus names; read when scraped, so the hot path only adds to plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from proxy.accounting.savings import saved_usd_so_far
from proxy.admin.families import (
    COMMIT_INTERVAL,
    by_interval,
    counter,
    gauge,
    labelled_counter,
    labelled_gauge,
    labelled_histogram,
)
from proxy.admin.record_metrics import record_metrics
from proxy.admin.state_metrics import process_state, state_metrics
from proxy.admin.transaction_metrics import transaction_metrics
from proxy.admin.wal_metrics import wal_metrics
from proxy.protocol.apis import API_TABLE
from proxy.telemetry.stats import Stats

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts


class ProxyCollector(Collector):
    """Reads the counters of one process."""

    def __init__(self, parts: Parts, ready: Callable[[], bool] = lambda: True) -> None:
        """`ready` returns True while clients are served."""
        self._parts = parts
        self._ready = ready

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics. Every family is there from the beginning, even if it has no sample yet."""
        yield from self._requests()
        yield from self._records()
        yield from wal_metrics(self._parts)
        yield from self._index()
        yield from transaction_metrics(self._parts)
        yield from process_state(self._parts, ready=self._ready())
        yield from state_metrics(self._parts)

    def _requests(self) -> Iterator[Metric]:
        stats = self._parts.process.stats
        yield labelled_counter(
            "requests",
            "Requests of clients.",
            ["api"],
            [((API_TABLE[api_key].name,), count) for api_key, count in stats.requests.items()],
        )
        yield from latency_metrics(stats)
        moved = [(("received",), stats.client_bytes_received), (("sent",), stats.client_bytes_sent)]
        yield labelled_counter("client_bytes", "Bytes from and to clients.", ["direction"], moved)
        yield labelled_counter(
            "partition_errors",
            "Errors that the proxy itself answered.",
            ["api", "error_code"],
            [((api, str(error_code)), count) for (api, error_code), count in stats.partition_errors.items()],
        )
        yield labelled_counter(
            "throttled_seconds",
            "Seconds for which clients of diskless topics were muted because of the brokers' quotas.",
            ["direction"],
            [((direction,), seconds) for direction, seconds in stats.throttled_seconds.items()],
        )
        yield counter("protocol_errors", "Frames from clients that could not be parsed.", stats.protocol_errors)
        yield counter("tls_handshakes_failed", "TLS handshakes of clients that failed.", stats.tls_handshakes_failed)
        yield labelled_counter(
            "tls_server_names_rejected",
            "TLS handshakes of clients that failed because no name, or an unknown one, selected a broker (SNI).",
            ["reason"],
            [((reason,), count) for reason, count in stats.tls_server_names_rejected.items()],
        )
        yield counter("upstream_failures", "Brokers that could not be reached for a client.", stats.upstream_failures)
        yield counter("connections_opened", "Client connections since the start.", stats.connections_opened)
        yield counter(
            "connections_refused",
            "Client connections that were closed because a limit was reached.",
            stats.connections_refused,
        )
        yield labelled_counter(
            "connections_cut_off",
            "Client connections that the proxy ended while they were in use.",
            ["reason"],
            [((reason,), count) for reason, count in stats.connections_cut_off.items()],
        )
        yield labelled_counter(
            "connections_ended",
            "Client connections that have ended, by the first cause.",
            ["cause"],
            [((cause,), count) for cause, count in stats.connections_ended.items()],
        )

    def _records(self) -> Iterator[Metric]:
        parts, settings = self._parts, self._parts.process.settings
        yield from record_metrics(parts.process.stats, settings.rack, settings.prices)
        racks = set(parts.brokers.cluster.racks_seen.values()) - {""}
        replication_factor = parts.topics.topic_defaults.replication_factor
        saved = saved_usd_so_far(parts.process.stats, settings.rack, len(racks), replication_factor, settings.prices)
        yield labelled_counter(
            "saved_usd",
            "US dollars that near reads save, and that diskless topics save compared with classic ones, by the "
            "setting prices.",
            ["saving"],
            [((saving,), usd) for saving, usd in saved.items()],
        )

    def _index(self) -> Iterator[Metric]:
        sizes = [((str(shard),), size) for shard, size in enumerate(self._parts.diskless.index_watch.sizes)]
        rows = [(shard, size.rows) for shard, size in sizes]
        taken = [(shard, size.size_bytes) for shard, size in sizes]
        yield labelled_gauge("index_rows", "Batch coordinates in the coordinator.", ["shard"], rows)
        yield labelled_gauge("index_bytes", "Memory of the store that the batch coordinates take.", ["shard"], taken)
        limit = self._parts.process.settings.redis.max_index_bytes
        yield gauge("index_bytes_limit", "Limit of each shard; 0 for no limit.", limit)


def latency_metrics(stats: Stats) -> Iterator[Metric]:
    """Yield the latencies of clients' requests that depend on how long a segment is filled."""
    yield labelled_histogram(
        "api_seconds",
        "Time from a client's request until its answer was sent, by API.",
        ["api", COMMIT_INTERVAL],
        [
            one
            for api_key, counted in sorted(stats.api_seconds.items())
            for one in by_interval((API_TABLE[api_key].name,), counted)
        ],
    )
    produces, fetches = by_interval((), stats.produce_seconds), by_interval((), stats.fetch_seconds)
    text = "Time from a Produce with diskless topics until its answer."
    yield labelled_histogram("produce_seconds", text, [COMMIT_INTERVAL], produces)
    text = "Time from a Fetch with diskless topics until its answer."
    yield labelled_histogram("fetch_seconds", text, [COMMIT_INTERVAL], fetches)
