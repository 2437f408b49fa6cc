"""A leader's answer is sorted by what follows from it for each shadow."""

from __future__ import annotations

import pytest

from proxy.coordinator.interface_transactions import Marker, MarkersRead, ShadowPosition
from proxy.markers.answers import ELSEWHERE, read_answers
from proxy.protocol.errors import NONE, OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED
from proxy.records.batches import control_batch
from proxy.wire.fetch_response import PartitionFetched

LOG = (bytes(16), 3)
AT_5 = {LOG: ShadowPosition(1, 5)}


def fetched(records: bytes = b"", *, high_watermark: int = 7, error_code: int = NONE) -> dict:
    return {LOG: PartitionFetched(3, error_code, high_watermark, -1, 0, (records,), len(records))}


def marker(offset: int) -> bytes:
    return control_batch(
        offset,
        2,
        producer_id=9,
        producer_epoch=1,
        coordinator_epoch=4,
        committed=True,
        timestamp_ms=6,
        log_append_time=False,
    )


def test_new_markers_up_to_the_end() -> None:
    read = read_answers(fetched(marker(5) + marker(6)), AT_5)
    markers = tuple(Marker(offset, 9, 1, 4, True, 6) for offset in (5, 6))
    assert read.parts == [MarkersRead(*LOG, 5, 7, 2, markers)]
    assert read.at_end == {LOG}


def test_more_markers_are_left() -> None:
    """The broker has cut the answer at its limit, within a batch."""
    read = read_answers(fetched((marker(5) + marker(6))[:-1]), AT_5)
    assert [part.next_offset for part in read.parts] == [6]
    assert read.at_end == set()


def test_nothing_new_is_the_end_only_at_the_high_watermark() -> None:
    assert read_answers(fetched(high_watermark=5), AT_5).at_end == {LOG}
    empty = read_answers(fetched(high_watermark=6), AT_5)
    assert (empty.at_end, empty.parts) == (set(), [])


@pytest.mark.parametrize("error_code", sorted(ELSEWHERE))
def test_the_leader_may_be_elsewhere(error_code: int) -> None:
    read = read_answers(fetched(error_code=error_code, high_watermark=-1), AT_5)
    assert (read.elsewhere, read.at_end) == ({LOG}, set())


def test_other_errors() -> None:
    assert read_answers(fetched(error_code=OFFSET_OUT_OF_RANGE), AT_5).out_of_range == {LOG}
    assert LOG in read_answers(fetched(error_code=TOPIC_AUTHORIZATION_FAILED), AT_5).failed


def test_a_damaged_marker_is_no_progress() -> None:
    damaged = bytearray(marker(5))
    damaged[-1] ^= 1
    read = read_answers(fetched(bytes(damaged)), AT_5)
    assert (read.parts, read.at_end, list(read.failed)) == ([], set(), [LOG])


def test_an_answer_for_a_shadow_that_was_left_meanwhile() -> None:
    assert read_answers(fetched(marker(5)), {}) == read_answers({}, {})
