"""A catalogue of all metrics, also of those that a scrape of a new proxy does not show yet.

`docs/metrics.md` is generated from it, and tests compare it with real scrapes. A label that is missing here is a bug.
So is a value that does not match its label's pattern, because a label without a bound fills Prometheus.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import redis.asyncio
from prometheus_client.core import Metric

from proxy.admin.families import LazyFamily
from proxy.admin.metrics import ProxyCollector
from proxy.admin.state_metrics import MAX_PARTITIONS_NAMED, MAX_TOPICS_NAMED
from proxy.admin.sums import worker_metrics
from proxy.assembly.parts import build_parts
from proxy.config import Settings
from proxy.connection.life import EndCause
from proxy.protocol.apis import API_TABLE
from proxy.replicas.choice import LeaderReason
from proxy.storage import open_storage
from proxy.telemetry.stats import CUT_OFF_REASONS, NAME_REJECTIONS, STORAGE_OPERATIONS

_SETTINGS = {
    "rack": "rack",
    "brokers": {"bootstrap": ["localhost:9092"]},
    "redis": {"url": "redis://localhost:6379"},
    "storage": {"url": "file:///nowhere"},
}


@dataclass(frozen=True, slots=True)
class Family:
    """One metric, as a scrape has it."""

    name: str
    """Name with the prefix, and with `_total` if it is a counter."""
    kind: str
    """Type, as Prometheus names it."""
    labels: tuple[str, ...]
    text: str

    @property
    def unit(self) -> str:
        """Return the unit of its values; a metric without a unit in its name counts things."""
        stem = self.name.removesuffix("_total").removesuffix("_limit")
        for ending, unit in (("_seconds", "seconds"), ("_bytes", "bytes"), ("_usd", "US dollars")):
            if stem.endswith(ending):
                return unit
        return _UNITS.get(stem.removeprefix("diskless_proxy_"), "count")

    @property
    def sample_names(self) -> tuple[str, ...]:
        """Return the names of its samples in queries."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


_UNITS = {
    "storage_bytes_read": "bytes",
    "cold_storage_bytes_read": "bytes",
    "build_info": "1",
    "ready": "0 or 1",
    "store_unfit": "0 or 1",
    "housekeeping_paused": "0 or 1",
}


@dataclass(frozen=True, slots=True)
class Label:
    """The values of a label."""

    text: str
    """Description of the values, or of their bound."""
    pattern: str
    """Pattern that all values match as a whole."""

    def allows(self, value: str) -> bool:
        """True if the label may have this value."""
        return re.fullmatch(self.pattern, value) is not None


def _one_of(*values: str) -> Label:
    return Label(", ".join(f"`{value}`" for value in values), "|".join(map(re.escape, values)))


_RACK = r"[^\n]{0,255}"
_TOPIC = r"(?s:.{1,249})"
"""Pattern of a topic's name. Clients may send any name, also of a topic that does not exist."""
LABELS = {
    "api": Label(
        "the [APIs](apis.md) that clients have used", "|".join(re.escape(api.name) for api in API_TABLE.values())
    ),
    "buffer": _one_of("held_requests", "unread_answers", "wal", "replica_answers", "cache", "cold_cache"),
    "cause": Label(
        "[why a connection ended](operations/load.md#ends-of-connections): "
        + ", ".join(f"`{one}`" for one in EndCause),
        "|".join(EndCause),
    ),
    "client_rack": Label(
        "the racks of brokers, proxies and settings; `unknown` for a rack that a client made up", _RACK
    ),
    "commit_interval_ms": Label(
        "`diskless.append.commit.interval.ms` when the request was answered; empty for APIs that wait for no segment",
        r"\d{0,18}",
    ),
    "direction": Label(
        "`produce` and `fetch` of records and quotas; `received` and `sent` of bytes", "produce|fetch|received|sent"
    ),
    "error_code": Label("Kafka's error codes that the proxy itself answers", r"-1|\d{1,3}"),
    "kind": Label(
        "`classic` and `diskless` of topics; `moved`, `ask` and `tryagain` of redirects",
        "classic|diskless|moved|ask|tryagain",
    ),
    "kio": Label("a version", r"\d+(\.\w+)+"),
    "node": Label("`host:port` of the servers of the coordinator's store", r"[^\n]{0,300}"),
    "operation": Label(
        "of requests to object storage: " + ", ".join(f"`{one}`" for one in STORAGE_OPERATIONS),
        "|".join(STORAGE_OPERATIONS),
    ),
    "partition": Label(
        f"the shard's number, or `redis.shards` for the registry; the {MAX_PARTITIONS_NAMED} with the most records",
        r"\d{1,4}",
    ),
    "python": Label("a version", r"\d+(\.\w+)+\+?"),
    "rack": Label("the racks of live proxies", _RACK),
    "reason": Label(
        "of reads: [why a partition was read from its leader](operations/leader-reads.md); of connections: "
        + ", ".join(f"`{one}`" for one in CUT_OFF_REASONS)
        + "; of TLS server names: "
        + ", ".join(f"`{one}`" for one in NAME_REJECTIONS),
        "|".join((*(reason.value for reason in LeaderReason), *CUT_OFF_REASONS, *NAME_REJECTIONS)),
    ),
    "result": _one_of("committed", "aborted"),
    "saving": _one_of("near_read", "diskless_produce", "diskless_replication", "diskless_fetch"),
    "serving_rack": Label("the racks of brokers, and the proxy's; empty where a broker has none", _RACK),
    "settings": Label("sections with a certificate: `listeners.tls`, `brokers.tls` and such", r"[a-z_0-9.\[\]]+\.tls"),
    "shard": Label("0 to `redis.shards` - 1", r"\d{1,4}"),
    "topic": Label(
        "at most `limits.max_counted_topics` names of topics that brokers know, `(others)` and `(unknown)`; of "
        f"`stray_records` the {MAX_TOPICS_NAMED} topics with most, and `(others)`",
        _TOPIC,
    ),
    "version": Label("the product's version", r"\d+(\.\w+)+"),
}
"""Labels by name; `le` of histograms is Prometheus' own, and `worker` of `process_*` the parent's."""


def families() -> list[Family]:
    """Return every metric of the product, in the order of a scrape."""

    async def collected() -> list[Metric]:
        settings = Settings.model_validate(_SETTINGS)
        storage = open_storage(settings.storage, settings.storage_class)
        return list(ProxyCollector(build_parts(settings, storage, redis.asyncio.Redis())).collect())

    return list(_described(chain(asyncio.run(collected()), worker_metrics(running=1, restarts=0))))


def _described(metrics: Iterator[Metric]) -> Iterator[Family]:
    for metric in metrics:
        assert isinstance(metric, LazyFamily)
        name = metric.name + ("_total" if metric.type == "counter" else "")
        yield Family(name, metric.type, metric.labels, metric.documentation)
