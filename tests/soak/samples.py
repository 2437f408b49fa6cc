"""Figures of every proxy's process and of both stores, sampled during a run."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import redis
from botocore.exceptions import BotoCoreError, ClientError
from prometheus_client.parser import text_string_to_metric_families

from proxy.demo.admin import get
from proxy.demo.s3 import BUCKET
from proxy.demo.stack import Stack
from tests.support.worker import Worker

PREFIX = "diskless_proxy_"
SCRAPE_SECONDS = 10.0
LISTING_SECONDS = 60.0
"""Minimum seconds between listings of all objects."""
STORES = "stores"
"""Name for figures that belong to no process."""
PERCENTILES = {"p50": 0.5, "p99": 0.99}
HISTOGRAMS = {"produce": "produce_seconds", "fetch": "fetch_seconds", "loop_lag": "event_loop_lag_seconds"}
MILLISECONDS = 1000.0
MIB = float(1 << 20)
Buckets = dict[float, float]
"""Upper bound in seconds mapped to the cumulative count."""


def percentile(before: Buckets, after: Buckets, share: float) -> float | None:
    """Return a percentile in seconds of the observations between two samples, spread evenly within a bucket; None if
    there were none."""
    grown = sorted((bound, count - before.get(bound, 0.0)) for bound, count in after.items())
    total = grown[-1][1] if grown else 0.0
    if total <= 0:
        return None
    below, low = 0.0, 0.0
    for bound, count in grown:
        if count >= share * total:
            if bound == float("inf"):
                return low
            inside = (share * total - below) / (count - below) if count > below else 1.0
            return low + inside * (bound - low)
        below, low = count, bound
    return low


class Sampler(Worker):
    """Samples all figures every `interval_seconds`."""

    def __init__(self, stack: Stack, interval_seconds: float, report: Callable[[str], None]) -> None:
        super().__init__("sampler", report)
        self.rows: list[dict[str, Any]] = []
        """One row per sample: `at_s` (seconds since the beginning of the run), `of` (a proxy, or STORES), `process`
        (its ID, to distinguish its lives) and the figures."""
        self._stack, self._interval_seconds = stack, interval_seconds
        self._began_s = time.monotonic()
        self._histograms: dict[tuple[int, str], Buckets] = {}
        self._cpu: dict[int, tuple[float, float]] = {}
        self._next_listing_s = 0.0
        self._store = redis.Redis.from_url(stack.redis.url, socket_timeout=SCRAPE_SECONDS)

    def start(self) -> None:
        """Start sampling."""
        self._began_s = time.monotonic()
        super().start()

    def finish(self) -> None:
        """Stop sampling."""
        super().finish()
        self._store.close()

    def work(self) -> None:
        """Take sample after sample."""
        while True:
            due = time.monotonic() + self._interval_seconds
            index: dict[str, float] = {}
            for name, proxy in self._stack.proxies.items():
                try:
                    row, index_of_it = self._proxy(name, proxy.process.pid, proxy.admin_url)
                except (OSError, ValueError, IndexError, StopIteration):
                    continue  # it is being restarted
                self.rows.append(row)
                index = index_of_it or index
            try:
                self.rows.append(self._stores(index))
            except (redis.RedisError, OSError):
                pass
            if self.ended.wait(max(0.0, due - time.monotonic())):
                return

    def _row(self, of: str, process: int) -> dict[str, Any]:
        return {"at_s": round(time.monotonic() - self._began_s, 1), "of": of, "process": process}

    def _proxy(self, name: str, pid: int, admin_url: str) -> tuple[dict[str, Any], dict[str, float]]:
        row = self._row(name, pid)
        asked_s = time.monotonic()
        healthy, _ = get(admin_url, "/healthz", SCRAPE_SECONDS)
        row["healthz_ms"] = round((time.monotonic() - asked_s) * MILLISECONDS, 2)
        status, text = get(admin_url, "/metrics", SCRAPE_SECONDS)
        if (healthy, status) != (200, 200):
            raise ConnectionError(f"{name} does not report its figures")
        values: defaultdict[str, float] = defaultdict(float)
        buckets: defaultdict[str, Buckets] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                named = sample.name.removeprefix(PREFIX)
                # The proxies keep one commit interval, so each name has one histogram.
                if named.endswith("_bucket") and set(sample.labels) <= {"le", "commit_interval_ms"}:
                    buckets[named.removesuffix("_bucket")][float(sample.labels["le"])] = sample.value
                else:
                    values[named] += sample.value
        process = self._process(pid)
        row |= process
        row["tasks"], row["connections"] = values["tasks"], values["connections"]
        # Each client has two connections: its own, and the one to its broker.
        row["own_descriptors"] = row["descriptors"] - 2 * row["connections"]
        row["cache_mib"] = round((values["cache_bytes"] + values["cold_cache_bytes"]) / MIB, 2)
        for figure, histogram in HISTOGRAMS.items():
            before = self._histograms.get((pid, histogram))
            self._histograms[pid, histogram] = buckets[histogram]
            if before is not None:
                for label, share in PERCENTILES.items():
                    found = percentile(before, buckets[histogram], share)
                    if found is not None:
                        row[f"{figure}_{label}_ms"] = round(found * MILLISECONDS, 2)
        return row, {"index_rows": values["index_rows"], "index_mib": round(values["index_bytes"] / MIB, 3)}

    def _process(self, pid: int) -> dict[str, float]:
        status = Path(f"/proc/{pid}/status").read_text()
        resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        found: dict[str, float] = {
            "rss_mib": round(int(resident) * 1024 / MIB, 2),
            "descriptors": float(len(os.listdir(f"/proc/{pid}/fd"))),
        }
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent, now = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), time.monotonic()
        if before := self._cpu.get(pid):
            found["cpu_percent"] = round(100 * (spent - before[0]) / max(now - before[1], 0.001), 2)
        self._cpu[pid] = spent, now
        return found

    def _stores(self, index: Mapping[str, float]) -> dict[str, Any]:
        row = self._row(STORES, 0) | dict(index)
        memory: Any = self._store.info("memory")
        row["redis_mib"] = round(memory["used_memory"] / MIB, 3)
        if "index_mib" in row:
            row["redis_beside_index_mib"] = round(row["redis_mib"] - row["index_mib"], 3)
        keyspace = self._store.info("keyspace").get("db0", {"keys": 0, "expires": 0})
        row["redis_keys"] = float(keyspace["keys"] - keyspace["expires"])
        if time.monotonic() >= self._next_listing_s:
            self._next_listing_s = time.monotonic() + LISTING_SECONDS
            try:
                row["objects"] = float(self._objects())
            except (BotoCoreError, ClientError):
                pass
        return row

    def _objects(self) -> int:
        if self._stack.s3 is None:
            return sum(1 for path in (self._stack.directory / "wal").rglob("*") if path.is_file())
        client = self._stack.s3.client()
        try:
            count, more = 0, {"Bucket": BUCKET}
            while True:
                page = client.list_objects_v2(**more)
                count += page.get("KeyCount", 0)
                if not page.get("IsTruncated"):
                    return count
                more["ContinuationToken"] = page["NextContinuationToken"]
        finally:
            client.close()


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
