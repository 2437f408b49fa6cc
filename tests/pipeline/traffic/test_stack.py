"""Rollups that real proxies write for real clients equal their metrics, and the job's report."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipeline.commands import app
from proxy.demo.stack import Stack
from tests.support.confluent import produce_to, read_partitions
from tests.support.metrics import Metrics
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, new_topic
from tests.support.waiting import wait_for

RACKS = ("rack-a", "rack-b", "rack-c")
AT_ITS_END = "rack-c"
"""Rack whose proxy writes nothing before it drains."""
QUICK_MS, NEVER_MS = 300, 3_600_000
PARTITIONS = 3
RECORD_LABELS = ("kind", "direction", "client_rack", "serving_rack")


@contextmanager
def accounts(stack: Stack) -> Iterator[None]:
    """Run proxies that begin a new account, under names that no earlier test used."""
    own = {rack: dict(stack.proxies[rack].settings) for rack in RACKS}
    end_proxies(stack)
    for rack in RACKS:
        interval_ms = NEVER_MS if rack == AT_ITS_END else QUICK_MS
        stack.configure_proxy(rack, {"proxy_id": f"account-{rack}", "rollups": {"interval_ms": interval_ms}})
    stack.heal()
    try:
        yield
    finally:
        end_proxies(stack)
        for rack in RACKS:
            stack.proxies[rack].settings = own[rack]
            stack.proxies[rack].prepare()


def end_proxies(stack: Stack) -> None:
    """Stop all running proxies at the same time."""
    running = [stack.process(f"proxy-{rack}") for rack in RACKS if stack.process(f"proxy-{rack}").running]
    for process in running:
        process.terminate()
    for process in running:
        process.wait_ended()


def from_metrics(metrics: Metrics) -> Counter[tuple[str, ...]]:
    """Return record bytes by their labels, and requests to storage, from the metrics."""
    sums = Counter[tuple[str, ...]]()
    for sample in metrics.samples("diskless_proxy_record_bytes_total"):
        sums[("records", *(sample.labels[label] for label in RECORD_LABELS))] += int(sample.value)
    for sample in metrics.samples("diskless_proxy_near_read_bytes_total"):
        sums["near_reads", sample.labels["client_rack"], sample.labels["serving_rack"]] += int(sample.value)
    sums["puts",] = int(metrics.value("segment_bytes_count") + metrics.value("upload_failures_total"))
    sums["put bytes",] = int(metrics.value("segment_bytes_sum"))
    sums["gets",] = int(metrics.value("storage_gets_total"))
    sums["get bytes",] = int(metrics.value("storage_bytes_read_total"))
    return +sums


def written(stack: Stack, rack: str) -> Counter[tuple[str, ...]]:
    """Return the same from the rollups."""
    sums = Counter[tuple[str, ...]]()
    for path in (stack.directory / "wal").glob(f"traffic/date=*/??-account-{rack}-*.parquet"):
        for row in pq.ParquetFile(io.BytesIO(path.read_bytes())).read().to_pylist():
            assert (row["proxy"], row["rack"]) == (f"account-{rack}", rack)
            if row["measure"] == "records":
                sums[("records", *(row[label] for label in RECORD_LABELS))] += row["bytes"]
            elif row["measure"] == "near_reads":
                sums["near_reads", row["client_rack"], row["serving_rack"]] += row["bytes"]
            elif row["measure"] != "coordination":
                sums[row["measure"],] += row["requests"]
                sums[f"{row['measure'].removesuffix('s')} bytes",] += row["bytes"]
    return +sums


@pytest.mark.timeout(240)
def test_rollups_equal_the_metrics_and_the_jobs_report(stack: Stack, spark: SparkSession) -> None:
    topics = {kind: new_topic(stack, f"traffic-{kind}", kind, partitions=PARTITIONS) for kind in (CLASSIC, DISKLESS)}
    with accounts(stack):
        # A client of an unknown rack without proxies is elsewhere: all its bytes cross.
        for place, rack in (*zip(RACKS, RACKS, strict=True), ("rack-z", "rack-b")):
            client = {"client_id": f"traffic-{place},diskless_rack_id={place}"}
            for topic in topics.values():
                records = {
                    partition: samples(20, f"{place}-{partition}", plain=True) for partition in range(PARTITIONS)
                }
                produce_to(stack.bootstrap(rack), topic, records, **client)
                read_partitions(stack.bootstrap(rack), topic, PARTITIONS, **client)
        scraped = {rack: Metrics(stack, rack) for rack in RACKS}
        for rack in RACKS:
            if rack != AT_ITS_END:
                wait_for(
                    lambda rack=rack: written(stack, rack) == from_metrics(scraped[rack]),
                    f"the account of {rack} is whole",
                )  # type: ignore[misc]
        assert not written(stack, AT_ITS_END)
        stack.kill_proxy("rack-a")
        assert stack.terminate_proxy(AT_ITS_END) == 0
        for rack in RACKS:
            assert written(stack, rack) == from_metrics(scraped[rack]), rack

    words = ["--topic", topics[CLASSIC], "--topic", topics[DISKLESS], "--from", "3h", "--json"]
    answer = CliRunner().invoke(app, ["traffic", "--config", str(stack.config_path("rack-a")), *words])
    report = json.loads(answer.stdout)
    assert (answer.exit_code, report["findings"]) == (0, []), answer.output
    figures = report["figures"]
    for kind, topic in topics.items():
        for direction in ("produce", "fetch"):
            labels = {"kind": kind, "direction": direction, "topic": topic}
            (row,) = [one for one in figures["topics"] if labels.items() <= one.items()]
            for name, metric in (("bytes", "record"), ("crossed_bytes", "cross_rack")):
                moved = sum(scraped[rack].value(f"topic_{metric}_bytes_total", **labels) for rack in RACKS)
                assert row[name] == moved > 0, (labels, name)
    cost = sum(scraped[rack].value("cross_rack_cost_usd_total") for rack in RACKS)
    assert figures["cost_with_proxies_usd"] == pytest.approx(cost)
    assert {flow["client_rack"] for flow in figures["flows"]} == {*RACKS, "unknown"}
