"""The command's own tools on a real stack, compared with Kafka's: their output is true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy.cli import app
from proxy.demo.stack import Stack
from proxy.diskless.produce_rules import APPEND_LATENCY
from tests.support.confluent import produce, produce_to
from tests.support.records import COMPRESSIONS, samples
from tests.support.topics import CLASSIC, DISKLESS, admin, delete_topic, new_topic, offsets
from tests.support.waiting import wait_for

RACK = "rack-a"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"


def run(*arguments: object, exit_code: int = 0) -> str:
    """Return the output of `diskless-proxy`."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == exit_code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout


def shown(stack: Stack, *arguments: object, exit_code: int = 0) -> Any:
    """Return the JSON output."""
    return json.loads(run(*arguments, "--config", stack.config_path(RACK), "--json", exit_code=exit_code))


def described(stack: Stack, topic: str, *options: str) -> Any:
    (one,) = shown(stack, "topics", "describe", topic, *options)["topics"]
    return one


def lines(text: str) -> list[dict[str, str]]:
    """Return batches and records as fields, without header values, which Kafka's tool does not print."""
    found = []
    for line in text.splitlines():
        if line.startswith(("baseOffset", "|")):
            without_values = re.sub(r" headers: \{.*?\}(?= key: | payload: |$)", "", line)
            name, _, payload = without_values.partition(" payload: ")
            found.append({**dict(re.findall(r"(\w+): (\S+)", name)), "payload": payload})
    return found


def test_a_dump_agrees_with_kafkas_own_tool(stack: Stack, tmp_path: Path) -> None:
    topic = new_topic(stack, "dump", CLASSIC)
    for compression in COMPRESSIONS:
        sent = samples(20, compression, 300)
        produce(stack.bootstrap(RACK), topic, sent, compression_type=compression, enable_idempotence=True)
    _end_transactions(stack, topic)
    # EndTxn is answered before the markers are written.
    wait_for(lambda: offsets(stack, topic) == (0, len(COMPRESSIONS) * 20 + 4), "no markers are written")
    (log,) = stack.log_directory(1).glob(f"{topic}-0/*.log")
    segment = tmp_path / "segment"
    segment.write_bytes(b"\0" + log.read_bytes())
    ours = lines(run("segments", "dump", segment, "--records"))
    arguments = ("--files", str(log), "--print-data-log")
    theirs = lines(stack.java(DUMP_LOG, *arguments, timeout=90).stdout)
    assert len(theirs) > len(COMPRESSIONS) * 20
    for one in theirs:
        one.pop("deleteHorizonMs", None)
    for one in ours:
        if "position" in one:
            one["position"] = str(int(one["position"]) - 1)
    assert ours == theirs
    assert [one["endTxnMarker"] for one in ours if "endTxnMarker" in one] == ["COMMIT", "ABORT"]


def _end_transactions(stack: Stack, topic: str) -> None:
    """Commit a transaction, and abort one."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": stack.bootstrap(RACK), "transactional.id": f"of-{topic}"})
    producer.init_transactions(60)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"value", b"key", partition=0)
        producer.flush(60)
        end(60)


def test_describe_shows_the_size_of_topics(stack: Stack) -> None:
    one, other = (new_topic(stack, label, DISKLESS, partitions=2) for label in ("described", "other"))
    configs = {"retention.ms": "-1"}
    kept = new_topic(stack, "kept", DISKLESS, configs=configs)
    produce_to(stack.bootstrap(RACK), one, {0: samples(10, "a"), 1: samples(5, "b")})
    produce(stack.bootstrap("rack-b"), other, samples(7, "c"), 1)
    figures = described(stack, one)
    assert [(each["log_start_offset"], each["high_watermark"]) for each in figures["partitions"]] == [(0, 10), (0, 5)]
    assert figures["live_bytes"] == sum(each["live_bytes"] for each in figures["partitions"]) > 0
    assert figures["total_bytes"] == figures["used_bytes"] + figures["dead_bytes"] + figures["objects"]
    assert (figures["shadow"], figures["stray_records"], figures["missing_objects"]) == ("present", 0, [])
    empty = described(stack, kept)
    assert (empty["live_bytes"], empty["total_bytes"], empty["objects"]) == (0, 0, 0)
    assert empty["configs"]["retention.ms"] == "-1"
    quick = described(stack, one, "--quick")
    assert (quick["live_bytes"], quick["total_bytes"], quick["shared_bytes"]) == (figures["live_bytes"], None, None)
    table = run("topics", "describe", one, "--config", stack.config_path(RACK))
    assert one in table
    assert f"{figures['live_bytes']:,}" in table


def test_objects_are_shared_until_one_topic_is_gone(stack: Stack) -> None:
    """Put both topics in one object: batches of both wait for each other."""
    patient = {APPEND_LATENCY: "2000"}
    one, other = (new_topic(stack, label, DISKLESS, configs=patient) for label in ("shared", "leaving"))
    segment = both_in_one_object(stack, one, other)
    figures = described(stack, one)
    assert figures["shared_bytes"] == figures["live_bytes"] > 0
    (of_object,) = shown(stack, "segments", "describe", segment)["segments"]
    assert {extent["topic"] for extent in of_object["extents"]} == {one, other}
    assert of_object["dead_bytes"] == 0
    assert sum(extent["length"] for extent in of_object["extents"]) == of_object["used_bytes"]
    left = described(stack, other)["live_bytes"]
    delete_topic(stack, other)
    figures = described(stack, one)
    assert (figures["shared_bytes"], figures["dead_bytes"]) == (0, left)
    by_topic = shown(stack, "segments", "describe", "--topic", one)["segments"]
    assert [(each["segment"], each["dead_bytes"]) for each in by_topic] == [(segment, left)]
    (unused, used) = sorted(
        json.loads(line)["topic"] or "" for line in dump(stack, segment, "--offsets", "--json").splitlines()
    )
    assert (unused, used) == ("", one)


def both_in_one_object(stack: Stack, one: str, other: str) -> str:
    """Write a record to each until one object has both; return its key. Earlier objects are deleted."""
    from confluent_kafka import Producer

    for _ in range(20):
        producer = Producer({"bootstrap.servers": stack.bootstrap(RACK), "linger.ms": 0})
        producer.list_topics(timeout=30)
        for topic in (one, other):
            producer.produce(topic, b"value", partition=0)
        assert producer.flush(60) == 0
        found = shown(stack, "segments", "describe", "--topic", one)["segments"]
        shared = [each["segment"] for each in found if each["used_bytes"] > each["extents"][0]["length"]]
        if shared:
            break
    else:
        raise AssertionError("no object has both")
    last = shared[-1]
    for topic in (one, other):
        of_topic = shown(stack, "segments", "describe", "--topic", topic)["segments"]
        (extent,) = (each["extents"][0] for each in of_topic if each["segment"] == last)
        delete_before(stack, topic, extent["base_offset"])
    return str(last)


def delete_before(stack: Stack, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition

    client = admin(stack)
    (done,) = client.delete_records([TopicPartition(topic, 0, offset)], request_timeout=30).values()
    done.result(40)


def dump(stack: Stack, segment: str, *options: str) -> str:
    return run("segments", "dump", segment, "--config", stack.config_path(RACK), *options)


def test_a_stored_segment_is_found_by_name_key_and_url(stack: Stack) -> None:
    topic = new_topic(stack, "named", DISKLESS)
    produce(stack.bootstrap(RACK), topic, samples(3, "named"))
    (first, *_) = shown(stack, "segments", "describe", "--topic", topic)["segments"]
    key = first["segment"]
    path = stack.directory / "wal" / key
    assert first["total_bytes"] == path.stat().st_size
    by_key = dump(stack, key, "--records").splitlines()[1:]
    assert len(by_key) >= 2
    for name in (key[3:], str(uuid.UUID(key[3:])), path, path.as_uri()):
        assert dump(stack, str(name), "--records").splitlines()[1:] == by_key
    with_offsets = [json.loads(line) for line in dump(stack, key, "--offsets", "--json").splitlines()]
    assert min(each["baseOffset"] for each in with_offsets if each["topic"] == topic) == 0


def test_list_distinguishes_kinds(stack: Stack) -> None:
    classic, diskless = (new_topic(stack, "listed", kind, partitions=2) for kind in (CLASSIC, DISKLESS))
    listed = {row["topic"]: row for row in shown(stack, "topics", "list")["topics"]}
    assert (listed[classic]["kind"], listed[diskless]["kind"]) == (CLASSIC, DISKLESS)
    assert (listed[classic]["partitions"], listed[diskless]["partitions"]) == (2, 2)
    only = [row["topic"] for row in shown(stack, "topics", "list", "--diskless")["topics"]]
    assert diskless in only
    assert classic not in only
    assert diskless in run("topics", "list", "--diskless", "--config", stack.config_path(RACK))


def test_topics_are_created_through_the_proxy(stack: Stack) -> None:
    name = f"created-{uuid.uuid4().hex[:6]}"
    wanted = ("--partitions", 3, "--config", "retention.ms=3600000")
    made = shown(stack, "topics", "create", name, *wanted)
    listed = {row["topic"]: row for row in shown(stack, "topics", "list")["topics"]}
    assert made == {key: listed[name][key] for key in ("topic", "kind", "topic_id", "partitions")}
    assert (made["kind"], made["partitions"]) == (DISKLESS, 3)
    assert described(stack, name)["configs"]["retention.ms"] == "3600000"
    again = CliRunner().invoke(app, ["topics", "create", name, "--config", str(stack.config_path(RACK))])
    assert again.exit_code == 1
    assert f"error: {name} was not created: Topic '{name}' already exists." in again.output
    classic = shown(stack, "topics", "create", f"{name}-classic", "--config", "diskless.enable=false")
    assert classic["kind"] == CLASSIC


@pytest.mark.parametrize(
    "arguments",
    [("topics", "describe", "nonesuch"), ("segments", "describe", "0" * 32), ("segments", "dump", "0" * 32)],
)
def test_missing_things_are_reported_in_one_line(stack: Stack, arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*arguments, "--config", str(stack.config_path(RACK))])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_missing_redis_is_reported_in_one_line(stack: Stack, tmp_path: Path) -> None:
    text = stack.config_path(RACK).read_text()
    config = tmp_path / "proxy.yaml"
    config.write_text(re.sub(r"redis://[^\s\"']+", "redis://127.0.0.1:1/0", text))
    command = [sys.executable, "-m", "proxy", "topics", "list", "--diskless", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "redis.url" in done.stderr
