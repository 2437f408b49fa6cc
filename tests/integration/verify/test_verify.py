"""`diskless-proxy verify` on real clusters: it finds nothing if nothing is wrong, and finds what is planted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from proxy.demo.stack import Stack
from proxy.judge.findings import Anomaly, Value
from proxy.judge.history import History
from proxy.judge.judge import judge
from proxy.judge.operations import ClientKind, Isolation, Outcome
from proxy.judge.report import text
from proxy.verify.options import Choice, VerifyError, VerifyOptions
from proxy.verify.payload import record
from proxy.verify.verification import Verification

pytestmark = pytest.mark.timeout(280)

LIGHT = VerifyOptions("", seconds=5.0, rate=100.0, producers=1)
VIEWS = {
    f"{kind}/{isolation}"
    for kind in (ClientKind.ASSIGN, ClientKind.CLASSIC, ClientKind.CONSUMER, ClientKind.FINAL)
    for isolation in Isolation
}


def through_proxies(stack: Stack) -> VerifyOptions:
    return replace(LIGHT, bootstrap=",".join(stack.bootstrap(rack) for rack in stack.proxies))


def test_proxies_lose_nothing(stack: Stack, tmp_path: Path) -> None:
    with Verification(through_proxies(stack), tmp_path / "history") as running:
        running.wait()
        running.wait_for(50, transactions=2)
        verdict = running.finish()
        running.delete_topics()
    assert verdict.ok, text(verdict)
    assert verdict.counts.acknowledged >= 50
    assert verdict.counts.committed >= 2
    assert set(verdict.counts.read) == VIEWS
    assert min(verdict.counts.read.values()) >= verdict.counts.acknowledged / 2
    assert running.topics.transactional == tuple(running.topics.created)
    assert not verdict.notes
    assert judge(History(running.path)).counts == verdict.counts


def test_proxies_lose_nothing_if_one_is_killed_and_restarted(stack: Stack, tmp_path: Path) -> None:
    with Verification(through_proxies(stack), tmp_path / "history") as running:
        running.wait_for(100, transactions=1)
        stack.kill_proxy("rack-b")
        running.wait_for(50)
        stack.start_proxy("rack-b")
        running.wait_for(100, transactions=1)
        verdict = running.finish()
    assert verdict.ok, text(verdict)
    assert verdict.counts.acknowledged >= 250


def test_the_command_on_plain_brokers_and_on_its_history(stack: Stack, tmp_path: Path) -> None:
    history = tmp_path / "history"
    command = [sys.executable, "-m", "proxy", "verify", "--json"]
    load = ["--bootstrap", stack.direct_bootstrap, "--seconds", "15", "--rate", "150", "--seed", "7"]
    done = subprocess.run(
        [*command, *load, "--write-history", str(history)], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["ok"], report["complete"], report["findings"]) == (True, True, [])
    assert report["counts"]["committed"] > 0
    assert any("rejects the config diskless.enable" in note for note in report["notes"])
    assert "reading everything again" in done.stderr
    outcomes = {one.outcome for one in History(history) if one.op == "ended"}
    assert Outcome.COMMITTED in outcomes
    again = subprocess.run(
        [*command, "--history", str(history)], capture_output=True, text=True, timeout=60, check=False
    )
    assert again.returncode == 0
    assert json.loads(again.stdout)["counts"] == report["counts"]


def test_a_record_that_is_stored_twice_is_found(stack: Stack, tmp_path: Path) -> None:
    """A stranger stores the bytes of an idempotent producer's record again, in each topic."""
    options = replace(through_proxies(stack), transactions=Choice.off)
    with Verification(options, tmp_path / "history") as running:
        running.wait_for(100)
        sent = next(one for one in History(running.path) if one.op == "send" and one.client in idempotent(running.path))
        stranger = Producer({"bootstrap.servers": options.bootstrap})
        value = Value(sent.client, sent.first)
        key, content = record(running.run, value, options.record_bytes)
        stranger.produce(sent.topic, content, key, sent.partition)
        stranger.produce(sent.topic, content[:-1] + b"!", key, sent.partition)
        assert stranger.flush(60) == 0
        running.wait_for(20)
        verdict = running.finish()
    assert set(verdict.totals) == {Anomaly.DUPLICATE, Anomaly.CORRUPT}, text(verdict)
    (duplicate,) = (finding for finding in verdict.findings if finding.anomaly is Anomaly.DUPLICATE)
    assert duplicate.values == (value,)
    assert {operation["op"] for operation in duplicate.operations} == {"send", "ack", "poll"}


def idempotent(path: Path) -> set[int]:
    return {one.client for one in History(path) if one.op == "client" and one.kind is ClientKind.IDEMPOTENT}


def test_a_load_that_cannot_begin_says_why(stack: Stack, tmp_path: Path) -> None:
    for options, words in (
        (replace(LIGHT, bootstrap="127.0.0.1:1"), "no broker of 127.0.0.1:1 answers"),
        (replace(LIGHT, bootstrap=stack.direct_bootstrap, replication_factor=9), "cannot create the topic"),
        (replace(through_proxies(stack), client_settings={"no.such": "1"}), "rejects the settings of --client-config"),
    ):
        began = time.monotonic()
        with pytest.raises(VerifyError, match=words), Verification(options, tmp_path / "history"):
            pass
        assert time.monotonic() - began < 120
