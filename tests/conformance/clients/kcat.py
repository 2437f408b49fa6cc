"""kcat with its old librdkafka, run as a program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.demo import servers
from tests.conformance.clients.programs import OUT, Program, run
from tests.conformance.model import (
    EARLIEST,
    HEARTBEAT_MS,
    LATEST,
    TIMEOUT_SECONDS,
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

KEY_DELIMITER = b"\t"
ACKNOWLEDGED = re.compile(r"Message delivered to partition (\d+) \(offset (-?\d+)\)")
FAILED = re.compile(r"Delivery failed for message: (.*)|ERROR: (.*)")
ASSIGNED = re.compile(r"rebalanced \(.*\): (assigned|revoked): ?(.*)")
PARTITION = re.compile(r"(\S+) \[(\d+)\]")
QUERIED = re.compile(r"\[\d+\] offset (-?\d+)")


class Kcat(Base):
    """The client as it is, or behaving like a client of an old Kafka release, which never sends ApiVersions."""

    def __init__(self, release: str = "") -> None:
        self.name = f"kcat as {release}" if release else "kcat"
        self._release = (
            ["-X", "api.version.request=false", "-X", f"broker.version.fallback={release}"] if release else []
        )
        self.abilities = frozenset(
            {
                Ability.PRODUCE,
                Ability.IDEMPOTENCE,
                Ability.CONSUME,
                Ability.GROUPS,
                Ability.LIST_OFFSETS,
                Ability.DESCRIBE,
            }
        )
        if release:
            self.compressions = ("none", "gzip", "snappy", "lz4")

    def express(self, wanted: Sequence[Sample]) -> list[Sample]:
        """Adapt records to kcat's lines: nothing empty, the same headers for all of a run, the time of sending."""
        headers = tuple((name, value) for name, value in wanted[0].headers if value)
        return [
            Sample(sample.key or (None if sample.value else b"tombstone"), sample.value or None, headers, 0)
            for sample in wanted
        ]

    def produce(
        self, bootstrap: str, topic: str, records: Mapping[int, Sequence[Sample]], how: Producing
    ) -> dict[int, list[Sent]]:
        flags = ["-P", "-t", topic, "-K", KEY_DELIMITER.decode(), "-Z", "-vv", "-z", how.compression]
        flags += ["-X", f"acks={how.acks}", "-X", f"enable.idempotence={str(how.idempotent).lower()}"]
        flags += ["-X", f"message.max.bytes={how.max_message_bytes}"]
        flags += ["-X", f"message.timeout.ms={int(TIMEOUT_SECONDS * 1000)}"]
        results: dict[int, list[Sent]] = {}
        for partition, samples in records.items():
            headers = [f"{name}={(value or b'').decode()}" for name, value in samples[0].headers]
            marked = [flag for header in headers for flag in ("-H", header)]
            lines = [
                (sample.key + KEY_DELIMITER if sample.key else b"") + (sample.value or b"") + b"\n"
                for sample in samples
            ]
            results[partition] = self._sent(
                partition, bootstrap, [*flags, "-p", str(partition), *marked], b"".join(lines)
            )
        return results

    def _sent(self, partition: int, bootstrap: str, flags: list[str], lines: bytes) -> list[Sent]:
        command, environment = self._command(bootstrap, *flags)
        done = run(command, lines, environment)
        text = done.stderr.decode(errors="replace")
        sent = [Sent(partition, max(int(found[2]), -1)) for found in ACKNOWLEDGED.finditer(text)]
        failures = [found[1] or found[2] for found in FAILED.finditer(text)]
        assert bool(done.returncode) == bool(failures), text
        return sent + [Sent(partition, -1, _without_topic(failure)) for failure in failures[:1]]

    def consume(self, bootstrap: str, what: Consuming) -> Iterator[Event]:
        start = {"earliest": "beginning", "latest": "end"}.get(str(what.start), str(what.start))
        flags = ["-G", what.group, what.topic] if what.group else ["-C", "-t", what.topic, "-o", start]
        flags += [] if what.group else ["-p", str(what.partition)]
        flags += ["-c", str(what.count)] if what.count else []
        flags += [
            "-X",
            f"auto.offset.reset={what.reset}",
            "-X",
            "check.crcs=true",
            "-X",
            f"heartbeat.interval.ms={HEARTBEAT_MS}",
        ]
        flags += ["-X", f"isolation.level={'read_committed' if what.read_committed else 'read_uncommitted'}"]
        # Options go before a group's topics, which are plain arguments.
        command, environment = self._command(bootstrap, "-J", "-u", *flags[3 if what.group else 0 :])
        program = Program(command + (flags[:3] if what.group else []), environment)
        assigned: set[tuple[str, int]] = set()
        try:
            for line in program.lines():
                if line is None:
                    yield None
                elif line[0] == OUT:
                    yield _received(json.loads(line[1]))
                elif change := ASSIGNED.search(line[1]):
                    named = {(found[1], int(found[2])) for found in PARTITION.finditer(change[2])}
                    assigned = assigned | named if change[1] == "assigned" else assigned - named
                    yield Assigned(frozenset(assigned))
                elif failure := FAILED.search(line[1]):
                    raise ClientError(_without_topic(failure[1] or failure[2]))
        finally:
            program.stop()

    def list_offsets(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        wanted = {EARLIEST: -2, LATEST: -1}.get(timestamp, timestamp)
        text = self._ask(bootstrap, "-Q", "-t", f"{topic}:{partition}:{wanted}")
        found = QUERIED.search(text)
        assert found, text
        return int(found[1])

    def describe_topic(self, bootstrap: str, topic: str) -> list[dict[str, Any]]:
        (found,) = json.loads(self._ask(bootstrap, "-L", "-J", "-t", topic))["topics"]
        if "error" in found:
            raise ClientError(found["error"])
        return partitions_of(
            [
                (one["partition"], one["leader"], [replica["id"] for replica in one["replicas"]])
                for one in found["partitions"]
            ]
        )

    def _ask(self, bootstrap: str, *flags: str) -> str:
        command, environment = self._command(bootstrap, *flags)
        done = run(command, environment=environment)
        text = done.stdout.decode() + done.stderr.decode()
        if done.returncode:
            raise ClientError(_without_topic(text.strip()))
        return done.stdout.decode()

    def _command(self, bootstrap: str, *flags: str) -> tuple[list[str], dict[str, str]]:
        program, environment = servers.kcat()
        return [program, "-b", bootstrap, *self._release, *flags], environment


def _without_topic(text: str) -> str:
    """Remove the topic and its leader from an error, because they differ from way to way."""
    return re.sub(r" \(broker \d+\)", "", re.sub(r"\S*conformance-\S*", "TOPIC", text))


def _received(event: dict[str, Any]) -> Received:
    headers = event.get("headers", [])
    return Received(
        event["topic"],
        event["partition"],
        event["offset"],
        _bytes(event["key"]),
        _bytes(event["payload"]),
        tuple((name, _bytes(value)) for name, value in zip(headers[::2], headers[1::2], strict=True)),
        event["ts"],
        {"create": "create", "logappend": "append"}.get(event["tstype"], ""),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")
