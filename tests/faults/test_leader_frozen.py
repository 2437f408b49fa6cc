"""Brokers hang (SIGSTOP: connections are accepted, nothing is answered) or die while clients read through them.

If a leader hangs, reads at its listener continue from the near replica. If a near replica hangs or dies, reads continue
from the leader, and return to the replica when it is back.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from proxy.demo.stack import Stack
from tests.batches import make_batch
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.routed import (
    LEADER,
    NEAR,
    RACK,
    RACK_OF_LEADER,
    Asked,
    Served,
    fetch,
    listener,
    produce,
    records_of,
    settle,
    topic_id,
    warm_up,
)
from tests.support.topics import CLASSIC, create_topic
from tests.support.waiting import wait_for

VERSIONS = (4, 7, 10, 11, 13, 17)
API_VERSIONS, API_VERSIONS_VERSION = 18, 3
SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}
MAX_WAIT_MS = 500
BATCHES = 3


class Log(NamedTuple):
    """A partition that LEADER leads, with records."""

    ids: dict[str, bytes]
    asked: Asked
    records: list[bytes]
    """Records that any replica must return."""

    def read(self, connection: Raw, version: int = 11, **values: int) -> list[bytes]:
        """Return the records of an answer."""
        return records_of(fetch(connection, version, [self.asked], self.ids, max_wait=MAX_WAIT_MS, **values))

    def read_again(self, stack: Stack) -> list[bytes]:
        """Read on a new connection to the leader's listener in the near rack."""
        with Raw(listener(stack, LEADER, RACK)) as connection:
            return self.read(connection)


@pytest.fixture
def log(stack: Stack) -> Log:
    name = f"leader-frozen-{uuid.uuid4().hex[:6]}"
    create_topic(stack, name, CLASSIC, assignment=[[LEADER, NEAR, 3]])
    ids, asked = {name: topic_id(stack, name)}, Asked(name, 0, 0)
    for _ in range(BATCHES):
        produce(stack, name, 0, bytes(make_batch([b"value"] * 3)))
    settle(stack, ids, asked)
    warm_up(stack, ids, asked)
    made = Log(ids, asked, [])
    return made._replace(records=made.read_again(stack))


def offered(connection: Raw) -> dict[int, int]:
    """Return the highest version of each API."""
    answer = ask(connection, API_VERSIONS, API_VERSIONS_VERSION, **SOFTWARE)
    return {api["api_key"]: api["max_version"] for api in answer["api_keys"]}


def served_near(stack: Stack, log: Log) -> bool:
    """True if the log is read in the proxy's rack now."""
    served = Served.begin(stack)
    assert log.read_again(stack) == log.records
    return set(served.record_bytes()) == {RACK}


def test_the_near_replica_answers_while_the_leader_hangs(stack: Stack, log: Log) -> None:
    address = listener(stack, LEADER, RACK)
    with ExitStack() as open_connections:
        existing = [open_connections.enter_context(Raw(address)) for _ in VERSIONS]
        versions, *others = [offered(connection) for connection in existing]
        assert all(other == versions for other in others)
        stack.pause(f"broker-{LEADER}")
        served = Served.begin(stack)
        new = [open_connections.enter_context(Raw(address)) for _ in VERSIONS]
        assert offered(new[0]) == versions
        for version, *connections in zip(VERSIONS, existing, new, strict=True):
            for connection in connections:
                assert log.read(connection, version) == log.records
        assert set(served.record_bytes()) == {RACK}
        assert served.leader_reads() == {}


def test_the_leader_answers_while_the_near_replica_hangs_and_reads_return_to_it(stack: Stack, log: Log) -> None:
    with Raw(listener(stack, LEADER, RACK)) as connection:
        stack.pause(f"broker-{NEAR}")
        served = Served.begin(stack)
        assert log.read(connection) == log.records
        assert log.read(connection) == log.records
        assert set(served.record_bytes()) == {RACK_OF_LEADER}
        reasons = served.leader_reads()
        assert reasons["timed_out"] >= 1, "one read finds out, and the other does not try where it comes soon"
        assert sum(reasons.values()) == 2
        stack.resume(f"broker-{NEAR}")
        wait_for(lambda: served_near(stack, log), "reads return to the near replica")


@pytest.mark.timeout(300)
def test_the_leader_answers_after_the_near_replica_has_died_and_reads_return_to_it(stack: Stack, log: Log) -> None:
    with Raw(listener(stack, LEADER, RACK)) as connection:
        assert log.read(connection) == log.records
        stack.kill_broker(NEAR)
        served = Served.begin(stack)
        assert log.read(connection) == log.records
        assert set(served.record_bytes()) == {RACK_OF_LEADER}
        stack.start_broker(NEAR)
        wait_for(lambda: served_near(stack, log), "reads return to the near replica")
        assert log.read(connection) == log.records
