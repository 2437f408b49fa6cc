"""Units of numeric settings, which their names contain."""

from __future__ import annotations

_UNITS = {
    "usd_per_gb": "US dollars per gigabyte",
    "usd_per_thousand": "US dollars per thousand",
    "per_second": "per second",
    "ms": "milliseconds",
    "us": "microseconds",
    "s": "seconds",
    "days": "days",
    "bytes": "bytes",
    "port": "port",
}
"""Units by a word, or words, of the name: `max_request_bytes_in_memory` is in bytes."""
_COUNTS = frozenset(
    {
        "append_connections_max",
        "cold_max_gets",
        "compression_threads",
        "diskless_append_max_uploads",
        "diskless_append_underway",
        "lifelines",
        "max_attempts",
        "max_connections",
        "max_connections_per_ip",
        "max_counted_topics",
        "max_held_batches",
        "max_in_flight_requests",
        "max_learned_clients",
        "max_prepared_batch_records",
        "max_rows",
        "max_unauthenticated_requests",
        "max_waiting",
        "min_insync_replicas",
        "near_partitions_max",
        "partitions_at_once",
        "producer_batches_remembered",
        "recent_errors_max",
        "replica_connections_max",
        "replica_partitions_compared",
        "replica_topics_remembered",
        "replication_factor",
        "snapshot_records",
        "shards",
        "tcp_keepalive_probes",
        "time_lookup_max_rows",
        "wait_replicas",
        "workers",
    }
)
"""Names of settings that count things."""

COUNT = "count"


def unit_of(name: str) -> str:
    """Return the unit of a number by the last part of its name; `count` for a number of things.

    Raises ValueError if the name contains no unit: every number has its unit in its name.
    """
    for words, unit in _UNITS.items():
        if f"_{words}_" in f"_{name}_":
            return unit
    if name in _COUNTS:
        return COUNT
    raise ValueError(f"{name}: its name contains no unit; put one of {', '.join(_UNITS)} in it, or enter it as a count")


def human(value: float, unit: str) -> str:
    """Return `104857600` bytes as `100 MiB` and `604800000` milliseconds as `7 days`; empty if the value is short as it
    is."""
    steps: tuple[tuple[float, str], ...] = ()
    if unit == "bytes":
        steps = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    elif unit == "milliseconds":
        steps = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"))
    for size, name in steps:
        if value >= size and value % size == 0:
            count = int(value // size)
            return f"{count:,} {name.removesuffix('s') if count == 1 else name}"
    return ""
