"""Slots on a connection that only records: held or streamed, counted, and finished once."""

from __future__ import annotations

import struct
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.client.slots import BrokerSlot, Slot, StreamedFetchSlot
from proxy.telemetry.stats import Stats
from proxy.wire.errors import ProtocolError
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response
from proxy.wire.frames import Decision

FETCH_VERSION = 16
TOPIC_ID = bytes(range(16))


class Connection:
    """The part of `ClientConnection` that slots use."""

    def __init__(self, *, head=True, room=True) -> None:
        self.stats = Stats()
        self.head, self.room = head, room
        self.written = b""
        self.finished: list[Slot] = []
        self.held: list[Slot] = []
        self.unreadable: list[Slot] = []

    def is_head(self, slot):
        return self.head

    def may_hold_response(self, size):
        return self.room

    def hold_response(self, slot):
        self.held.append(slot)

    def write(self, part):
        self.written += part

    def pass_whole(self, slot, frame):
        self.written += frame
        slot.finish()

    def slot_finished(self, slot):
        self.finished.append(slot)

    def broker_answer_unreadable(self, slot, error):
        self.unreadable.append(slot)
        slot.lose()


def heartbeat(connection, rewrite=None):
    return BrokerSlot(connection, 12, 0, 7, rewrite)


def test_an_answer_without_header_is_counted_as_held_before_it_is_written():
    connection = Connection()
    slot = Slot(connection, 17, 0, 0)
    slot.fill_frame(b"token")
    assert connection.held == connection.finished == [slot]
    assert b"".join(slot.buffers) == b"\0\0\0\5token"


def fetch_frame(records=b"r" * 50, version=FETCH_VERSION):
    partition = PartitionFetched(0, 0, 1, 1, 0, [records], len(records))
    topic = TOPIC_ID if version >= 13 else "orders"
    body = b"".join(build_fetch_response(version, 0, [TopicFetched(topic, [partition])]))
    return struct.pack(">i", 7) + (b"\0" if version >= 12 else b"") + body


def streamed_fetch(connection, version=FETCH_VERSION):
    count = partial(connection.stats.count_records, "classic", "fetch", "rack-a", "rack-b")
    return StreamedFetchSlot(connection, version, 7, lambda node: ("proxy", 1), count)


def counted(connection):
    """Return counts by topic."""
    stats = connection.stats
    if TOPIC_ID in stats.unsettled_bytes:
        stats.settle(TOPIC_ID, "orders")
    counts = stats.record_bytes
    assert {key[:4] for key in counts} <= {("classic", "fetch", "rack-a", "rack-b")}
    return {topic: size for (*_, topic), size in counts.items()}


@pytest.mark.parametrize(("version", "header"), [(0, b""), (9, b"\0")])
def test_an_answer_of_our_own_gets_size_and_header(version, header):
    connection = Connection()
    slot = Slot(connection, 0, version, 7)
    slot.fill([b"bo", b"dy"])
    assert b"".join(slot.buffers) == struct.pack(">ii", 8 + len(header), 7) + header + b"body"
    assert connection.finished == [slot]


def test_a_slot_is_finished_once():
    connection = Connection()
    slot = Slot(connection, 0, 0, 7)
    slot.fill([b"first"])
    slot.fill([b"second"])
    slot.lose()
    slot.finish()
    assert connection.finished == [slot]
    assert not slot.lost
    assert bytes(slot.buffers[-1]) == b"first"


def test_a_lost_slot_is_not_filled_any_more():
    connection = Connection()
    slot = Slot(connection, 0, 0, 7)
    slot.lose()
    slot.fill([b"late"])
    assert (slot.lost, slot.buffers, connection.finished) == (True, [], [slot])


@pytest.mark.parametrize(
    ("head", "room", "decision"),
    [
        (True, True, Decision.STREAM),
        (True, False, Decision.STREAM),
        (False, True, Decision.HOLD),
        (False, False, Decision.WAIT),
    ],
)
def test_the_head_streams_and_others_wait_their_turn(head, room, decision):
    assert heartbeat(Connection(head=head, room=room)).response_begins(100) is decision
    rewritten = heartbeat(Connection(head=head, room=room), lambda body: [body])
    assert rewritten.response_begins(100) is (Decision.HOLD if decision is Decision.STREAM else decision)


def test_a_streamed_answer_ends_with_its_last_part():
    connection = Connection()
    slot = heartbeat(connection)
    slot.response_part(memoryview(b"one"), False)
    assert connection.finished == []
    slot.response_part(memoryview(b"two"), True)
    assert (connection.written, connection.finished) == (b"onetwo", [slot])


def test_a_held_answer_is_rewritten_under_a_new_size():
    connection = Connection()
    slot = heartbeat(connection, lambda body: [b"longer ", body])
    slot.response_held(memoryview(struct.pack(">i", 7) + b"body"))
    assert b"".join(slot.buffers) == struct.pack(">ii", 15, 7) + b"longer body"
    assert (connection.held, connection.finished) == ([slot], [slot])


def test_an_answer_that_can_not_be_rewritten_is_lost_rather_than_passed_on():
    def unreadable(body):
        raise ProtocolError("no")

    connection = Connection()
    slot = heartbeat(connection, unreadable)
    slot.response_held(memoryview(struct.pack(">i", 7) + b"body"))
    assert (slot.lost, slot.buffers, connection.unreadable) == (True, [], [slot])


@pytest.mark.parametrize("version", [4, 11, 12, 16])
@given(st.lists(st.integers(1, 300), min_size=1, max_size=5))
def test_a_fetch_answer_streams_through_in_any_parts(version, cuts):
    connection = Connection()
    slot = streamed_fetch(connection, version)
    frame = struct.pack(">i", len(fetch_frame(version=version))) + fetch_frame(version=version)
    at, turn = 0, 0
    while at < len(frame):
        part = frame[at : at + cuts[turn % len(cuts)]]
        at, turn = at + len(part), turn + 1
        slot.response_part(memoryview(part), at == len(frame))
    assert connection.written == frame
    assert connection.finished == [slot]
    assert counted(connection) == {"orders": 50}


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_a_fetch_answer_that_had_to_wait_is_the_same(version):
    connection = Connection(head=False)
    slot = streamed_fetch(connection, version)
    frame = fetch_frame(version=version)
    slot.response_held(memoryview(frame))
    assert b"".join(slot.buffers) == struct.pack(">i", len(frame)) + frame
    assert connection.held == [slot]
    assert counted(connection) == {"orders": 50}


def test_an_answer_that_the_broker_does_not_end_is_counted_as_far_as_it_came():
    connection = Connection()
    slot = streamed_fetch(connection)
    slot.response_part(memoryview(struct.pack(">i", len(fetch_frame())) + fetch_frame()[:-10]), False)
    slot.response_lost()
    slot.response_lost()
    assert slot.lost
    assert counted(connection) == {"orders": 50}


@pytest.mark.parametrize("version", [4, 12])
def test_an_older_answer_that_can_not_be_read_passes(version):
    connection = Connection()
    frame = struct.pack(">ii", 100, 7) + b"\0" * (version >= 12) + bytes(10) + b"\xff" * 90
    slot = streamed_fetch(connection, version)
    for at in range(0, len(frame), 25):
        slot.response_part(memoryview(frame)[at : at + 25], at + 25 >= len(frame))
    assert connection.written == frame
    assert connection.finished == [slot]
    assert not slot.lost


def test_an_invalid_fetch_answer_is_reported_once_and_ends_there():
    connection = Connection()
    slot = streamed_fetch(connection)
    slot.response_part(memoryview(struct.pack(">ii", 100, 7) + b"\1"), False)
    slot.response_part(memoryview(b"more"), False)
    slot.response_part(memoryview(b"last"), True)
    assert connection.unreadable == [slot]
    assert connection.written == b""
