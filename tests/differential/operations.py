"""Operations on a topic: each one is complete in itself, so that it can be printed, kept and repeated."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from tests.differential.shapes import Shape
from tests.differential.side import CLOSED, EARLIEST, LIST_OFFSETS, PRODUCE, Side
from tests.differential.views import BATCHES, View

FETCH, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 1, 21, 23
DESCRIBE_CONFIGS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS = 32, 37, 44
TOPIC = 2
MAX_TIMESTAMP = -3
SET, DELETE = 0, 1
TOPIC_CONFIG = 1
"""Source of a config that is set on the topic itself."""
TIMEOUT_MS = 30_000
SETTLE_SECONDS = 5.0
LAG_SECONDS = 2.0
APPLIED_SECONDS = 0.1
"""Seconds to wait, because a broker describes a config shortly before it applies it."""


class Operation(Protocol):
    """One operation; `at` selects one of the side's listeners."""

    def apply(self, side: Side, expected: Any = None) -> Any:
        """Apply it; return the answer in comparable form. `expected` is the other side's answer, if it came first."""


@dataclass(frozen=True, slots=True)
class Produce:
    """Produce batches to partitions."""

    at: int
    version: int
    acks: int
    batches: tuple[tuple[int, Shape], ...]
    former: bool = False
    FIRST_ID_VERSION: ClassVar[int] = 13

    def apply(self, side: Side, expected: Any = None) -> Any:
        if self.acks != 0:
            return View(side).of(side.ask(self.at, PRODUCE, self.version, **self.values(side)))
        partitions = sorted({partition for partition, _ in self.batches})
        there = [partition for partition in partitions if partition < side.partitions]
        side.send(self.at, PRODUCE, self.version, **self.values(side))
        if expected is None:
            closed = side.ask(self.at, LIST_OFFSETS, 5, replica_id=-1, topics=[]) == CLOSED
            return {"closed": closed, "ends": side.ends(self.at, there)}
        return self._settled(side, there, expected)

    def _settled(self, side: Side, partitions: list[int], expected: dict[str, Any]) -> dict[str, Any]:
        """Return the observed state as soon as it is the expected one, or when time is up."""
        deadline = time.monotonic() + SETTLE_SECONDS
        closed = False
        while True:
            closed = closed or side.ask(self.at, LIST_OFFSETS, 5, replica_id=-1, topics=[]) == CLOSED
            observed = {"closed": closed, "ends": side.ends(self.at + 1, partitions)}
            if observed == expected or time.monotonic() > deadline:
                return observed
            time.sleep(0.005)

    def values(self, side: Side) -> dict[str, Any]:
        data = [{"index": partition, "records": shape.build(side.began_ms)} for partition, shape in self.batches]
        named = side.names(self.version, self.FIRST_ID_VERSION, self.former)
        return {
            "transactional_id": None,
            "acks": self.acks,
            "timeout": TIMEOUT_MS,
            "topic_data": [{**named, "partition_data": data}],
        }


@dataclass(frozen=True, slots=True, order=True)
class Asked:
    """One partition of a Fetch."""

    partition: int
    offset: int
    max_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class Fetch:
    at: int
    version: int
    asked: tuple[Asked, ...]
    max_bytes: int = 52_428_800
    min_bytes: int = 0
    max_wait_ms: int = 20
    isolation: int = 0
    former: bool = False
    FIRST_ID_VERSION: ClassVar[int] = 13

    def apply(self, side: Side, expected: Any = None) -> Any:
        deadline = time.monotonic() + LAG_SECONDS
        while True:
            view = View(side).of(side.ask(self.at, FETCH, self.version, **self.values(side)))
            if not lags(view, expected) or time.monotonic() > deadline:
                return view
            time.sleep(0.005)

    def values(self, side: Side) -> dict[str, Any]:
        partitions = [
            {
                "partition": one.partition,
                "current_leader_epoch": -1,
                "fetch_offset": one.offset,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": one.max_bytes,
            }
            for one in self.asked
        ]
        return {
            "replica_id": -1,
            "max_wait": self.max_wait_ms,
            "min_bytes": self.min_bytes,
            "max_bytes": self.max_bytes,
            "isolation_level": self.isolation,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{**side.names(self.version, self.FIRST_ID_VERSION, self.former), "partitions": partitions}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }


def lags(view: Any, expected: Any) -> bool:
    """True if the answer may be slightly older: lower watermarks or log start, but some records."""
    if not isinstance(view, dict) or not isinstance(expected, dict):
        return False
    found, wanted = (
        [one for topic in answer["responses"] for one in topic["partitions"]] for answer in (view, expected)
    )
    return any(
        name in one and one[name] < other[name]
        for one, other in zip(found, wanted, strict=False)
        for name in ("high_watermark", "last_stable_offset", "log_start_offset")
        if (one[BATCHES] or not other[BATCHES])
        and all(mine == theirs for mine, theirs in zip(one[BATCHES], other[BATCHES], strict=False))
    )


@dataclass(frozen=True, slots=True)
class LongPoll:
    """A Fetch that waits until a Produce on another connection adds records."""

    fetch: Fetch
    produce: Produce

    def apply(self, side: Side, expected: Any = None) -> Any:
        waiting = replace(side, _connections={})
        try:
            waiting.send(self.fetch.at, FETCH, self.fetch.version, **self.fetch.values(side))
            time.sleep(APPLIED_SECONDS / 10)
            produced = self.produce.apply(side)
            return {
                "produced": produced,
                "fetched": View(side).of(waiting.answer(self.fetch.at, FETCH, self.fetch.version)),
            }
        finally:
            waiting.close()


@dataclass(frozen=True, slots=True)
class ListOffsets:
    at: int
    version: int
    asked: tuple[tuple[int, int], ...]
    """Partitions with a special timestamp below 0, or one counted from the beginning of the case."""
    isolation: int = 0

    def apply(self, side: Side, expected: Any = None) -> Any:
        partitions = [
            {
                "partition_index": partition,
                "current_leader_epoch": -1,
                "timestamp": asked if is_special(asked) else side.began_ms + asked,
            }
            for partition, asked in self.asked
        ]
        topics = [{"name": side.topic, "partitions": partitions}]
        values = {"replica_id": -1, "isolation_level": self.isolation, "topics": topics, "timeout": TIMEOUT_MS}
        view = View(side).of(side.ask(self.at, LIST_OFFSETS, self.version, **values))
        if isinstance(view, dict) and any(asked == MAX_TIMESTAMP for _, asked in self.asked):
            # The comparison handles deleted records.
            view["log starts"] = side.offsets(self.at, range(side.partitions), EARLIEST)
        return view


def is_special(timestamp: int) -> bool:
    """True if it is special. Times of producers are further from the beginning of the case than this limit."""
    return -100 < timestamp < 0


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    at: int
    version: int
    asked: tuple[tuple[int, int], ...]

    def apply(self, side: Side, expected: Any = None) -> Any:
        partitions = [{"partition_index": partition, "offset": offset} for partition, offset in self.asked]
        topics = [{"name": side.topic, "partitions": partitions}]
        answer = side.ask(self.at, DELETE_RECORDS, self.version, topics=topics, timeout=TIMEOUT_MS)
        return View(side).of(answer)


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpoch:
    at: int
    version: int
    asked: tuple[tuple[int, int], ...]
    """Partitions with epochs."""

    def apply(self, side: Side, expected: Any = None) -> Any:
        partitions = [
            {"partition": partition, "current_leader_epoch": -1, "leader_epoch": epoch}
            for partition, epoch in self.asked
        ]
        topics = [{"topic": side.topic, "partitions": partitions}]
        answer = side.ask(self.at, OFFSET_FOR_LEADER_EPOCH, self.version, replica_id=-1, topics=topics)
        return View(side).of(answer)


FIXED_CONFIG = "min.insync.replicas"
"""Config that a diskless topic always reports as 1."""


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Set a config, or delete it if `value` is None."""

    at: int
    version: int
    name: str
    value: str | None

    def apply(self, side: Side, expected: Any = None) -> Any:
        change = {"name": self.name, "config_operation": DELETE if self.value is None else SET, "value": self.value}
        resource = {"resource_type": TOPIC, "resource_name": side.topic, "configs": [change]}
        answer = side.ask(self.at, INCREMENTAL_ALTER_CONFIGS, self.version, resources=[resource], validate_only=False)
        view = View(side).of(answer)
        if isinstance(answer, dict) and answer["responses"][0]["error_code"] == 0:
            side.rewritten |= self.rewrites
            if self.name == FIXED_CONFIG:
                return view | {"described": {}}
            deadline = time.monotonic() + SETTLE_SECONDS
            while not self._is_reported(side) and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(APPLIED_SECONDS)
            view["described"] = described(side, self.at, self.name)
        return view

    @property
    def rewrites(self) -> bool:
        return self.name == "compression.type" and self.value not in (None, "producer")

    def _is_reported(self, side: Side) -> bool:
        """True if every listener reports the new value."""
        found = [described(side, at, self.name) for at in range(len(side.addresses))]
        if self.value is None:
            return all(one["source"] != TOPIC_CONFIG for one in found)
        return all(one == {"value": self.value, "source": TOPIC_CONFIG} for one in found)


def described(side: Side, at: int, name: str) -> dict[str, Any]:
    """Return value and source of one config."""
    resource = {"resource_type": TOPIC, "resource_name": side.topic, "configuration_keys": [name]}
    answer = side.ask(at, DESCRIBE_CONFIGS, 4, resources=[resource])
    assert isinstance(answer, dict)
    (config,) = answer["results"][0]["configs"]
    return {"value": config["value"], "source": config["config_source"]}


@dataclass(frozen=True, slots=True)
class DescribeConfigs:
    at: int
    version: int
    synonyms: bool = False

    def apply(self, side: Side, expected: Any = None) -> Any:
        resource = {"resource_type": TOPIC, "resource_name": side.topic, "configuration_keys": None}
        answer = side.ask(self.at, DESCRIBE_CONFIGS, self.version, resources=[resource], include_synonyms=self.synonyms)
        view = View(side).of(answer)
        if isinstance(view, dict):
            for result in view["results"]:
                result["configs"].sort(key=lambda config: config["name"])
        return view


@dataclass(frozen=True, slots=True)
class AddPartitions:
    at: int
    version: int
    count: int

    def apply(self, side: Side, expected: Any = None) -> Any:
        topics = [{"name": side.topic, "count": self.count, "assignments": None}]
        answer = side.ask(self.at, CREATE_PARTITIONS, self.version, topics=topics, timeout=TIMEOUT_MS)
        if isinstance(answer, dict) and answer["results"][0]["error_code"] == 0:
            side.wait_served(self.count)
        return View(side).of(answer)


@dataclass(frozen=True, slots=True)
class Recreate:
    """Delete the topic, query it while it is gone, and create one of the same name."""

    partitions: int
    configs: tuple[tuple[str, str], ...]
    meanwhile: Sequence[Operation] = field(default=())

    def apply(self, side: Side, expected: Any = None) -> Any:
        deleted = side.delete()
        answers = [operation.apply(side) for operation in self.meanwhile]
        return {"deleted": deleted, "meanwhile": answers, "created": side.create(self.partitions, dict(self.configs))}


@dataclass(frozen=True, slots=True)
class Pass:
    """Let time pass."""

    milliseconds: int

    def apply(self, side: Side, expected: Any = None) -> Any:
        # The time passes for the other side too.
        if expected is None:
            time.sleep(self.milliseconds / 1000)
        return "time has passed"
