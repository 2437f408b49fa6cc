"""What the proxy counts, as plain numbers that cost the hot path next to nothing; `admin.metrics` gives them names."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZE_BOUNDS_BYTES = (1024, 16_384, 65_536, 262_144, 1_048_576, 2_097_152, 4_194_304, 8_388_608, 67_108_864)


class Histogram:
    """Observations in buckets, cumulated when they are read."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Stats:
    """All counters of one proxy."""

    def __init__(self) -> None:
        self.requests: defaultdict[int, int] = defaultdict(int)
        """By API key."""
        self.client_bytes_received = 0
        self.client_bytes_sent = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.tls_handshakes_failed = 0
        self.upstream_failures = 0
        self.record_bytes: defaultdict[tuple[str, str, str, str], int] = defaultdict(int)
        """By (kind: classic or diskless, direction: produce or fetch, client's rack, serving rack)."""
        self.partition_errors: defaultdict[tuple[str, int], int] = defaultdict(int)
        """Errors that the proxy itself answered, by (API name, error code)."""
        self.produce_seconds = Histogram(LATENCY_BOUNDS_S)
        self.fetch_seconds = Histogram(LATENCY_BOUNDS_S)
        self.upload_seconds = Histogram(LATENCY_BOUNDS_S)
        self.commit_seconds = Histogram(LATENCY_BOUNDS_S)
        self.segment_bytes = Histogram(SIZE_BOUNDS_BYTES)
        self.upload_failures = 0
        self.commit_failures = 0
        self.duplicate_batches = 0
        self.index_full_batches = 0
        """Batches that were refused because the index of their shard is full."""
        self.segments_deleted = 0
        self.throttled_seconds = {"produce": 0.0, "fetch": 0.0}
        """For which clients of diskless topics were muted by the brokers' quotas, by direction."""

    def count_request(self, api_key: int) -> None:
        """One request of a client."""
        self.requests[api_key] += 1
