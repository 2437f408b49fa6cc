"""Count the stray records in a placeholder topic's log, without markers, and each once."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse

from proxy.housekeeping.stray import Looked, StrayRecords, _count
from proxy.wire.cold import encode, milliseconds
from tests.batches import make_batch


def at(offset: int, count: int = 1, *, control: bool = False) -> bytes:
    """A batch as a broker stores it."""
    batch = make_batch([b"value"] * count)
    batch[:8] = offset.to_bytes(8, "big")
    if control:
        batch[22] |= 0x30
    return bytes(batch)


def test_records_are_counted_and_markers_are_passed_over() -> None:
    log = at(0, 3) + at(3, control=True) + at(4, 2) + at(6, control=True)
    assert _count(log, 0) == (5, 7)


def test_a_check_continues_in_the_middle_of_a_batch() -> None:
    assert _count(at(0, 10), 4) == (6, 10)
    assert _count(at(0, 3) + at(3, 2), 3) == (2, 5)


def test_a_gap_left_by_a_deletion_is_not_a_record() -> None:
    assert _count(at(5) + at(100, 2), 0) == (3, 102)


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    log = at(0, 2) + at(2, 5)
    for cut in (1, 30, 61, len(at(2, 5)) - 1):
        assert _count(log[: len(at(0, 2)) + cut], 0) == (2, 2)
    assert _count(b"", 7) == (0, 7)


async def test_a_broker_that_throttles_ends_the_look() -> None:
    """Kafka answers a Fetch over its quota without any partition."""
    asked = 0

    class Throttling:
        async def ask(self, *_: object) -> bytes:
            nonlocal asked
            asked += 1
            response: Any = FetchResponse
            return encode(
                response(throttle_time=milliseconds(5_000), error_code=ErrorCode(0), session_id=0, responses=())
            )

    leader: Any = Throttling()
    cluster: Any = None
    stray = StrayRecords(cluster)
    stray._fetches_left = 9
    looked = Looked(bytes(16))
    for partition in (0, 1):
        await stray._read(leader, ("t", partition), looked, 5)
    assert (asked, looked.position, stray.refused) == (1, 0, None)


def test_partitions_with_markers_only() -> None:
    cluster: Any = None
    stray = StrayRecords(cluster)
    stray._looked = {
        ("markers", 0): Looked(bytes(16), 2, 5),
        ("stray", 0): Looked(bytes(16), 0, 5, records=1),
        ("not-read", 0): Looked(bytes(16), 3, 3),
    }
    assert list(stray.without_strays()) == [("markers", 0)]
