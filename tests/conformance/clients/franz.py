"""franz-go, through the program in tests/conformance/go."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.demo import servers
from tests.conformance.clients.programs import OUT, Program, run
from tests.conformance.model import (
    HEARTBEAT_MS,
    Ability,
    Assigned,
    Base,
    ClientError,
    Consuming,
    Event,
    Producing,
    Received,
    Sent,
    partitions_of,
)
from tests.support.records import Sample

REPLICAS = "3"


class FranzGo(Base):
    """The client as it is, or behaving like a client of an old Kafka release."""

    def __init__(self, release: str = "") -> None:
        self.name = f"franz-go as {release}" if release else "franz-go"
        self._release = ["-max-version", release] if release else []
        old = {Ability.KIP_848, Ability.MAX_TIMESTAMP, Ability.CONFIGS, Ability.GROUP_ADMIN} if release else set()
        self.abilities = frozenset(Ability) - old
        if release:
            self.compressions = ("none", "gzip", "snappy", "lz4")

    def produce(
        self, bootstrap: str, topic: str, records: Mapping[int, Sequence[Sample]], how: Producing
    ) -> dict[int, list[Sent]]:
        flags = ["-topic", topic, "-acks", how.acks, "-compression", how.compression]
        flags += [f"-idempotent={str(how.idempotent or bool(how.transaction)).lower()}"]
        flags += ["-batch-max-bytes", str(how.max_message_bytes)]
        if how.transaction:
            flags += ["-transactional-id", how.transaction, "-end", "commit" if how.commit else "abort"]
        lines = [_line(partition, sample) for partition, samples in records.items() for sample in samples]
        events = self._run("produce", bootstrap, *flags, stdin="".join(lines))
        sent = [
            Sent(event["partition"], event["offset"])
            if event["event"] == "acked"
            else Sent(event["partition"], -1, _name(event))
            for event in events
        ]
        if any(one.partition < 0 for one in sent):
            raise ClientError(next(one.error for one in sent if one.partition < 0))
        if how.acks == "0":
            sent = [Sent(one.partition, -1, one.error) for one in sent]
        return {partition: [one for one in sent if one.partition == partition] for partition in records}

    def consume(self, bootstrap: str, what: Consuming) -> Iterator[Event]:
        flags = ["-topic", what.topic, "-from", str(what.start)]
        flags += ["-reset", "none" if what.reset == "error" else what.reset]
        flags += ["-count", str(what.count)]
        flags += ["-isolation", "read_committed" if what.read_committed else "read_uncommitted"]
        if what.group:
            flags += ["-group", what.group, "-group-protocol", "consumer" if what.kip_848 else "classic"]
            flags += ["-heartbeat", f"{HEARTBEAT_MS}ms"]
        else:
            flags += ["-partition", str(what.partition)]
        program = Program(self._command("consume", bootstrap, *flags))
        assigned: set[tuple[str, int]] = set()
        try:
            for line in program.lines():
                if line is None:
                    yield None
                    continue
                if line[0] != OUT:
                    raise ClientError(line[1])
                event = json.loads(line[1])
                if event["event"] == "error":
                    raise ClientError(_name(event))
                if event["event"] == "record":
                    yield _received(event)
                else:
                    named = {(topic, one) for topic, numbers in event["partitions"].items() for one in numbers}
                    assigned = assigned | named if event["event"] == "assigned" else assigned - named
                    yield Assigned(frozenset(assigned))
        finally:
            program.stop()

    def list_offsets(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        found = self._ask(bootstrap, "list-offsets", topic, "-timestamp", str(timestamp))
        return int(found[str(partition)][0])

    def create_topic(self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        settings = ["-partitions", str(partitions), "-replicas", REPLICAS, "-configs", json.dumps(dict(configs))]
        self._ask(bootstrap, "create-topic", topic, *settings)

    def describe_topic(self, bootstrap: str, topic: str) -> list[dict[str, Any]]:
        found = self._ask(bootstrap, "describe-topic", topic)["partitions"]
        return partitions_of([(one["partition"], one["leader"], one["replicas"]) for one in found])

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self._ask(bootstrap, "delete-topic", topic)

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        return dict(self._ask(bootstrap, "describe-configs", topic))

    def alter_configs(self, bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
        self._ask(bootstrap, "alter-configs", topic, "-configs", json.dumps(dict(configs)))

    def group_offsets(self, bootstrap: str, group: str, topic: str) -> dict[int, int]:
        found = self._ask(bootstrap, "group-offsets", topic, "-group", group)
        return {int(partition): offset for partition, offset in found.items() if offset >= 0}

    def delete_group(self, bootstrap: str, group: str) -> None:
        self._ask(bootstrap, "delete-group", "", "-group", group)

    def _ask(self, bootstrap: str, operation: str, topic: str, *flags: str) -> Any:
        (event,) = self._run("admin", bootstrap, "-operation", operation, "-topic", topic, *flags)
        if event["event"] == "error":
            raise ClientError(_name(event))
        return event["result"]

    def _run(self, mode: str, bootstrap: str, *flags: str, stdin: str = "") -> list[dict[str, Any]]:
        done = run(self._command(mode, bootstrap, *flags), stdin.encode())
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == any(event["event"] == "error" for event in events), done.stderr.decode()
        return events

    def _command(self, mode: str, bootstrap: str, *flags: str) -> list[str]:
        return [servers.kafka_go_client(), mode, "-bootstrap", bootstrap, *self._release, *flags]


def _name(event: dict[str, Any]) -> str:
    """Return Kafka's name of an error, or the library's own text."""
    return str(event["detail"] if event["error"] == "CLIENT" else event["error"])


def _line(partition: int, sample: Sample) -> str:
    headers = [{"key": name, "value": _encoded(value)} for name, value in sample.headers]
    record = {
        "partition": partition,
        "key": _encoded(sample.key),
        "value": _encoded(sample.value),
        "headers": headers,
        "timestamp": sample.timestamp_ms,
    }
    return json.dumps(record) + "\n"


def _received(event: dict[str, Any]) -> Received:
    return Received(
        event["topic"],
        event["partition"],
        event["offset"],
        _decoded(event["key"]),
        _decoded(event["value"]),
        tuple((header["key"], _decoded(header["value"])) for header in event["headers"]),
        event["timestamp"],
        {0: "create", 1: "append"}.get(event["timestamp_type"], ""),
    )


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
