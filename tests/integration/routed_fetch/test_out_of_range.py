"""KIP-392's four cases of an offset out of a follower's range: clients get the answer that the leader would give."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.demo.stack import Stack
from tests.batches import make_batch
from tests.integration.routed_fetch.conftest import BATCH, RECORDS, REPLICAS
from tests.support.routed import (
    HIGHEST_VERSION,
    LEADER,
    NEAR,
    ON_A_REPLICA,
    RACK,
    Asked,
    Served,
    Twins,
    all_see_leader,
    broker_address,
    delete_records,
    fetch,
    lead,
    partitions,
    produce,
    records_of,
    requests,
    settle,
    topic_id,
    warm_up,
)
from tests.support.topics import CLASSIC, create_topic, offsets
from tests.support.waiting import wait_for

OFFSET_OUT_OF_RANGE = 1
VERSIONS = (4, 9, ON_A_REPLICA, HIGHEST_VERSION)
LONG_MS = 20_000
"""Wait that only records may end."""
LEADER_ANSWERS_S = 3.0
"""Several times `replica.fetch.wait.max.ms`: a leader on a busy machine took more than half a second once."""


class Log:
    """A partition that is led in one rack and has a replica in the proxy's rack."""

    def __init__(self, stack: Stack, label: str) -> None:
        self.stack, self.topic = stack, f"range-{label}"
        create_topic(stack, self.topic, CLASSIC, assignment=[REPLICAS])
        self.ids = {self.topic: topic_id(stack, self.topic)}
        wait_for(lambda: self._errors() == {0}, "the new topic is served")
        self.end = 0
        for _ in range(3):
            self.end = produce(stack, self.topic, 0, BATCH) + RECORDS
        self.settle()

    def asked(self, offset: int) -> Asked:
        return Asked(self.topic, 0, offset)

    def restore(self) -> None:
        """Lead the partition in its rack again, and learn its end: brokers may have been paused for too long."""
        if not all_see_leader(self.stack, self.topic, 0, REPLICAS):
            lead(self.stack, self.topic, 0, REPLICAS)
        _, self.end = offsets(self.stack, self.topic)
        self.settle()

    def settle(self) -> None:
        """Wait until the replica is as far as the leader."""
        settle(self.stack, self.ids, self.asked(self.end))
        warm_up(self.stack, self.ids, self.asked(self.end - 1))

    def replica_error(self, offset: int) -> int:
        """Return the near replica's error for an offset."""
        answer = fetch(broker_address(self.stack, NEAR), ON_A_REPLICA, [self.asked(offset)], self.ids)
        return int(partitions(answer)[0]["error_code"])

    def _errors(self) -> set[int]:
        return {
            partitions(fetch(broker_address(self.stack, node), ON_A_REPLICA, [self.asked(0)], self.ids))[0][
                "error_code"
            ]
            for node in REPLICAS
        }


@pytest.fixture(scope="module")
def log(running_stack: Stack) -> Log:
    return Log(running_stack, uuid.uuid4().hex[:6])


@pytest.fixture
def twins(stack: Stack, log: Log) -> Iterator[Twins]:
    log.restore()
    with Twins(stack, log.ids) as twins:
        yield twins


def test_committed_records_that_the_replica_does_not_yet_know_to_be_come(stack: Stack, log: Log, twins: Twins) -> None:
    """KIP-392's case 1: the replica's high watermark lags by a round. It has the record, and returns it as soon as it
    may."""
    served = Served.begin(stack)
    for version in VERSIONS:
        offset = produce(stack, log.topic, 0, BATCH)
        log.end = offset + RECORDS
        at_once = partitions(twins.routed(version, log.asked(offset)))[0]
        assert at_once["error_code"] == 0
        beyond = partitions(twins.routed(version, log.asked(log.end)))[0]
        assert (beyond["error_code"], beyond["records"] or b"") == (0, b"")
        waited = twins.routed(version, log.asked(offset), max_wait=LONG_MS)
        assert records_of(waited) == records_of(twins.directly(version, log.asked(offset)))
    assert served.record_bytes()[RACK] > 0


def test_records_that_the_replica_does_not_have_yet_are_no_error(stack: Stack, log: Log, twins: Twins) -> None:
    """Case 2 as it happens naturally: an offset that a producer has just received with acks 1, and the next one."""
    for version in VERSIONS:
        offset = produce(stack, log.topic, 0, BATCH, acks=1)
        log.end = offset + RECORDS
        for wanted in (log.end, offset):
            assert partitions(twins.routed(version, log.asked(wanted)))[0]["error_code"] == 0
    log.settle()


def test_a_replica_that_lags_is_not_believed(stack: Stack, log: Log, twins: Twins) -> None:
    """Case 2, forced: the replica is paused while the leader writes, then the leader is paused.

    The client waits for the leader, and does not get an error that its offset is out of range.
    """
    stack.pause(f"broker-{NEAR}")
    produce(stack, log.topic, 0, BATCH, acks=1)  # may be the answer to an earlier request of the replica
    time.sleep(LEADER_ANSWERS_S)  # after the producer has its own answer; the next batch must not be in it, too
    end = produce(stack, log.topic, 0, BATCH, acks=1) + RECORDS
    served = Served.begin(stack)
    stack.pause(f"broker-{LEADER}")
    stack.resume(f"broker-{NEAR}")
    seen: list[int] = []

    def lags() -> bool:
        seen.append(log.replica_error(end))
        return seen[-1] == OFFSET_OUT_OF_RANGE

    try:
        wait_for(lags, "the replica lags", seconds=5)
    except AssertionError:
        pytest.fail(f"the replica does not lag: its errors for offset {end} were {sorted(set(seen))}")
    with ThreadPoolExecutor(1) as threads:
        before = requests(stack)
        asking = threads.submit(twins.routed, ON_A_REPLICA, log.asked(end))
        try:
            wait_for(lambda: requests(stack) > before, "the Fetch has come", seconds=5)
            time.sleep(3.0)  # the replica answers soon; that it has done so is asserted below
        finally:
            stack.resume(f"broker-{LEADER}")
        partition = partitions(asking.result(30))[0]
    assert (partition["error_code"], partition["records"] or b"") == (0, b"")
    assert served.leader_reads() == {"out_of_range": 1}
    log.end = end
    log.settle()
    assert_same(twins, log, end)


def test_the_start_of_the_log_has_moved(stack: Stack, log: Log, twins: Twins) -> None:
    """Case 3: deleted records are out of range at once, and the others are read as before."""
    before = log.end - 2 * RECORDS
    assert_same(twins, log, before - 1)
    delete_records(stack, log.topic, 0, before)
    for offset in (0, before - 1):
        assert assert_same(twins, log, offset) == {OFFSET_OUT_OF_RANGE}
    assert assert_same(twins, log, before) == {0}


def test_an_offset_that_never_was_is_out_of_range(stack: Stack, log: Log, twins: Twins) -> None:
    """Case 4, as after a truncation: beyond the end of the leader's log. The error comes at once, whatever the wait."""
    for offset in (log.end + 1, log.end + 1000):
        assert assert_same(twins, log, offset, max_wait=LONG_MS) == {OFFSET_OUT_OF_RANGE}
    log.end = produce(stack, log.topic, 0, bytes(make_batch([b"more"] * 1001))) + 1001
    log.settle()
    assert assert_same(twins, log, log.end - 1) == {0}


def assert_same(twins: Twins, log: Log, offset: int, **values: int) -> set[int]:
    """Require the same answer in all versions; return the error codes."""
    found = set()
    for version in VERSIONS:
        directly, routed = twins.fetch(version, log.asked(offset), **values)
        assert routed == directly, version
        found.add(partitions(directly)[0]["error_code"])
    return found
