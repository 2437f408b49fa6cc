"""The bytes that scripts receive and return."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator import packing, packing_state
from proxy.coordinator.interface import (
    Announcement,
    BatchAnswer,
    FindRequest,
    ListRequest,
    LogAnswer,
    LogDescription,
    OffsetAnswer,
    PartitionRun,
    ProposedBatch,
    Row,
    RunAnswer,
)
from proxy.coordinator.interface_transactions import AbortedTransaction

TOPIC = bytes(range(16))
HEADER = b"incarnat0123456789abcdef" + b"".join(number.to_bytes(8, "big") for number in (5, 6, 8, 7, 9, 10)) + bytes(4)

offsets = st.integers(0, packing.MAX_EXACT)
timestamps = st.integers(-packing.MAX_EXACT, packing.MAX_EXACT)
rows = st.builds(
    Row,
    base_offset=offsets,
    last_offset=offsets,
    segment=st.binary(min_size=16, max_size=16),
    position=st.integers(0, 2**32 - 1),
    length=st.integers(0, 2**32 - 1),
    max_timestamp_ms=timestamps,
    append_time_ms=timestamps,
    log_append_time=st.booleans(),
    offsets_in_place=st.booleans(),
)


def packed_row(row: Row, log_start: int = 0, running_maximum: int = 0) -> bytes:
    flags = 0x10 * row.log_append_time + 0x20 * row.offsets_in_place
    offsets_and_kind = row.last_offset, row.base_offset, log_start, 1 + flags, row.segment, row.append_time_ms
    return struct.pack(">qqqB16sqIIqq", *offsets_and_kind, *row[3:6], running_maximum)


def test_a_row_is_longer_than_what_the_server_keeps_in_lists() -> None:
    assert len(packed_row(Row(0, 0, bytes(16), 0, 0, 0, 0))) > 64


def test_the_state_of_a_shard() -> None:
    state = packing_state.ShardState(b"incarnat", 7, b"0123456789abcdef", 9, 5, 6, 8, 10)
    assert packing_state.unpack_shard_state(HEADER + b"more") == state
    assert packing_state.without_lives(HEADER + b"more", state) == HEADER + b"more"
    lives = bytes(48) + HEADER[:48]
    reply = HEADER[:-4] + (96).to_bytes(4, "big") + lives + b"more"
    seen = packing_state.unpack_shard_state(reply)
    assert (seen, seen.lives) == (state, lives)
    assert seen.is_in(lives)
    assert not seen.is_in(lives[:48])
    assert not seen.is_in(lives[1:])
    assert packing_state.without_lives(reply, seen) == HEADER + b"more"


def test_a_run() -> None:
    batch = ProposedBatch(100, 3, 1_000, 2**63 - 1, 4, 2**31 - 2)
    packed = packing.pack_run(PartitionRun(TOPIC, 5, 1, (batch, batch), log_append_time=True))
    assert packed[:24] == TOPIC + struct.pack(">II", 5, 2)
    first, second = (struct.pack(">qI?IIqhII", 2**63 - 1, at, True, 100, 3, 1_000, 4, 2**31 - 2, 1) for at in (1, 101))
    assert (packed[24:63], packed[63:]) == (first, second)


def test_transactional_batches_of_a_run() -> None:
    plain = ProposedBatch(100, 3, 1_000, 7, 4, 0)
    first, second = plain._replace(transaction_version=1), plain._replace(transaction_version=2, markers_from=9)
    runs = [PartitionRun(TOPIC, 5, 1, (plain, some, plain)) for some in (plain, first, second)]
    assert [packing.are_transactional([run]) for run in runs] == [False, True, True]
    packed = [packing.pack_run(run, transactional=True) for run in runs]
    assert {one[: 24 + 3 * 39] for one in packed} == {packing.pack_run(runs[0])}
    kinds = [one[24 + 3 * 39 :] for one in packed]
    assert kinds == [struct.pack(">BqBqBq", 0, -1, *kind, 0, -1) for kind in ((0, -1), (1, -1), (2, 9))]


@pytest.mark.parametrize(
    ("base", "records", "after"),
    [(0, 1, 1), (2**31 - 1, 1, 0), (2**31 - 2, 1, 2**31 - 1), (2**31 - 2, 5, 3), (0, 2**31 - 1, 2**31 - 1)],
)
def test_the_sequence_after_a_batch(base: int, records: int, after: int) -> None:
    packed = packing.pack_run(PartitionRun(TOPIC, 5, 1, (ProposedBatch(1, records, 0, 1, 0, base),)))
    assert struct.unpack(">I", packed[-4:]) == (after,)


@pytest.mark.parametrize(("timestamp", "expected"), [(2**63 - 1, 2**53 - 1), (-(2**63), 1 - 2**53), (-1, -1)])
def test_timestamps_are_cut_to_what_is_exact(timestamp: int, expected: int) -> None:
    packed = packing.pack_run(PartitionRun(TOPIC, 5, 1, (ProposedBatch(1, 1, timestamp, -1, -1, -1),)))
    assert struct.unpack_from(">q", packed, 45) == (expected,)


def test_run_answers() -> None:
    runs = [PartitionRun(TOPIC, n, 1, (ProposedBatch(1, 1, 1, -1, -1, -1),) * n) for n in (0, 1, 3)]
    reply = HEADER + struct.pack(">qqh", 1, 2, 0)
    reply += struct.pack(">qqh", -1, -1, 3)
    reply += struct.pack(">qqh", 3, 9, 0) + struct.pack(">hBqq", 45, 0, -1, -1)
    reply += struct.pack(">hBqq", 0, 1, 8, 7) + struct.pack(">hBqq", 45, 2, -1, -1)
    answers = BatchAnswer(45, -1, -1, False), BatchAnswer(0, 7, 8, True), BatchAnswer(45, -1, -1, False, early=True)
    assert list(packing.unpack_run_answers(reply, runs)) == [
        RunAnswer(TOPIC, 0, 0, (), 1, 2),
        RunAnswer(TOPIC, 1, 3, (), -1, -1),
        RunAnswer(TOPIC, 3, 0, answers, 3, 9),
    ]


@given(st.lists(st.lists(rows, max_size=3), max_size=4))
def test_log_answers_round_trip(found: list[list[Row]]) -> None:
    aborted = AbortedTransaction(8, 2, 2**62, 9)
    answers = [
        LogAnswer(index % 2, tuple(some), index, index + 1, index - 1, (aborted,) * index)
        for index, some in enumerate(found)
    ]
    reply = HEADER
    for answer in answers:
        bounds = (answer.log_start_offset, answer.high_watermark, answer.last_stable_offset)
        reply += struct.pack(">hqqqII", answer.error_code, *bounds, len(answer.rows), len(answer.aborted))
        reply += b"".join(map(packed_row, answer.rows)) + struct.pack(">qqqq", *aborted) * len(answer.aborted)
    assert list(packing.unpack_log_answers(reply)) == answers


@given(st.lists(st.tuples(st.lists(rows, max_size=3), st.booleans()), max_size=4))
def test_announcements_round_trip(found: list[tuple[list[Row], bool]]) -> None:
    aborted = (AbortedTransaction(8, 2, 2**62, 9),)
    announcements = [
        Announcement(TOPIC, index, tuple(some), index, end, end - 1 if open_ or not some else end, aborted * open_)
        for index, (some, open_) in enumerate(found)
        for end in [some[-1].last_offset + 1 if some else 7]
    ]
    message = HEADER
    for one in announcements:
        log = TOPIC + one.partition.to_bytes(4, "big")
        for row in one.rows:
            message += log + packed_row(row, one.log_start_offset)
        for last, first, producer_id, stable in one.aborted:
            message += log + struct.pack(">qqqBqq32x", last, first, one.log_start_offset, 4, producer_id, stable)
        if not one.rows or one.last_stable_offset != one.high_watermark:
            ends = (one.high_watermark - 1, one.last_stable_offset, one.log_start_offset)
            message += log + struct.pack(">qqq49x", *ends)
    assert list(packing.unpack_announcements(message)) == announcements


def test_offset_answers_and_descriptions() -> None:
    reply = HEADER + struct.pack(">hqqqhqqq", 0, 5, 6, 7, 3, -1, -1, -1)
    assert list(packing.unpack_offset_answers(reply)) == [(OffsetAnswer(0, 5, 6), 7), (OffsetAnswer(3, -1, -1), -1)]
    reply = HEADER + struct.pack(">B5qB40x", 1, 2, 3, 4, 5, 6, 0)
    assert list(packing.unpack_descriptions(reply)) == [LogDescription(2, 3, 4, 5, 6), None]


def test_requests() -> None:
    assert packing.pack_find(FindRequest(TOPIC, 1, 2**62, 2**62)) == TOPIC + struct.pack(">Iqq", 1, *[2**53 - 1] * 2)
    assert packing.pack_list(ListRequest(TOPIC, 1, -3, 5)) == TOPIC + struct.pack(">Iqq", 1, -3, 5)


@given(st.lists(st.binary(max_size=9)))
def test_strings_round_trip(strings: list[bytes]) -> None:
    packed = b"head" + b"".join(len(one).to_bytes(4, "big") + one for one in strings)
    assert list(packing.unpack_strings(packed, 4)) == strings
