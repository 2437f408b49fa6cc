"""The admin port as monitoring sees it: `/healthz`, `/readyz`, and `/metrics` after a known bit of traffic."""

from __future__ import annotations

import urllib.error
import urllib.request
import uuid

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import produce, read
from tests.support.metrics import Metrics
from tests.support.readiness import readiness
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, create_topic, new_topic

RACK = "rack-a"
COUNT = 20


def test_health_and_readiness(stack: Stack) -> None:
    for rack in stack.proxies:
        with urllib.request.urlopen(f"{stack.admin_url(rack)}/healthz", timeout=10) as response:
            assert (response.status, response.read()) == (200, b"ok\n")
        assert readiness(stack.admin_url(rack)) == (200, "ready")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{stack.admin_url(RACK)}/nothing", timeout=10)
    caught.value.close()
    assert caught.value.code == 404


def test_metrics_count_the_traffic(stack: Stack) -> None:
    diskless = new_topic(stack, "metrics", DISKLESS)
    far = f"metrics-classic-{uuid.uuid4().hex[:6]}"
    create_topic(stack, far, CLASSIC, assignment=[[3, 1, 2]])
    before = Metrics(stack, RACK)
    sent = samples(COUNT, "metrics", plain=True)
    size = sum(len(sample.value or b"") for sample in sent)
    for topic in (diskless, far):
        produce(stack.bootstrap(RACK), topic, sent)
        assert len(read(stack.bootstrap(RACK), topic)) == COUNT
    after = Metrics(stack, RACK)

    def more(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    # Records are counted by kind, by the client's rack and by the rack that served them. The classic leader is in
    # another rack. Reads that do not use the replica in the own rack are counted with their reason.
    for kind, direction, where in (
        ("diskless", "produce", {"serving_rack": RACK}),
        ("diskless", "fetch", {"serving_rack": RACK}),
        ("classic", "produce", {"serving_rack": "rack-c"}),
        ("classic", "fetch", {}),
    ):
        labels = {"kind": kind, "direction": direction, "client_rack": RACK, **where}
        assert size < more("record_bytes_total", **labels) < 2 * size, labels
    assert more("cross_rack_bytes_total", kind="diskless") == 0
    assert more("cross_rack_bytes_total", kind="classic", direction="produce") == more(
        "record_bytes_total", kind="classic", direction="produce"
    )
    assert more("cross_rack_bytes_total", kind="classic", direction="fetch") == more("leader_read_bytes_total")
    assert after.value("record_bytes_total", client_rack=RACK, kind="diskless", serving_rack="rack-c") == 0

    for api in ("Produce", "Fetch", "Metadata", "ListOffsets"):
        assert more("requests_total", api=api) >= 2
    assert more("client_bytes_total", direction="received") > 2 * size
    assert more("client_bytes_total", direction="sent") > 2 * size
    segments = more("segment_bytes_count")
    assert segments >= 1
    assert more("segment_bytes_sum") >= size
    for part in ("upload_seconds_count", "commit_seconds_count"):
        assert more(part) == segments
    assert more("produce_seconds_count") >= 1
    assert more("fetch_seconds_count") >= 1
    assert more("cache_hits_total") >= 1
    assert more("connections_opened_total") >= 4
    assert more("coordination_bytes_total", direction="sent") > 0
    assert after.value("diskless_topics") >= 1
    assert {rack: after.value("fleet_proxies", rack=rack) for rack in stack.proxies} == dict.fromkeys(stack.proxies, 1)
    assert after.value("brokers") == len(stack.kafka.brokers)
    for nothing in ("upload_failures_total", "commit_failures_total", "protocol_errors_total"):
        assert more(nothing) == 0


def test_connections_without_kafka_are_refused_and_counted(stack: Stack) -> None:
    before = Metrics(stack, RACK).value("protocol_errors_total")
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        urllib.request.urlopen(f"http://{stack.bootstrap(RACK)}/", timeout=10)
    assert Metrics(stack, RACK).value("protocol_errors_total") == before + 1
    assert "client_rejected" in stack.log_tail(f"proxy-{RACK}")
    assert "HTTP" in stack.log_tail(f"proxy-{RACK}")
