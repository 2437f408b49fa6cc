import pytest

from proxy.demo.payload import MIN_RECORD_BYTES, Writer, checksum, now_ns, read

RUN, OTHER_RUN = b"run-run-", b"another-"


@pytest.mark.parametrize("size", [MIN_RECORD_BYTES, 1024, 100_000])
def test_a_record_is_read_as_it_was_written(size: int) -> None:
    before_ns = now_ns()
    key, value = Writer(RUN, 7, size).record(3_000_000_000, measured=False)
    assert len(value) == size
    assert key == b"7-3000000000"
    sent = read(RUN, value)
    assert sent is not None
    assert (sent.producer, sent.sequence, sent.measured) == (7, 3_000_000_000, False)
    assert before_ns <= sent.sent_ns <= now_ns()


def test_records_of_other_runs_are_ignored() -> None:
    _, value = Writer(RUN, 7, 100).record(1)
    assert read(OTHER_RUN, value) is None
    assert read(RUN, value[: MIN_RECORD_BYTES - 1]) is None
    assert read(RUN, None) is None


def test_the_checksum_distinguishes_records_and_single_bits() -> None:
    writer = Writer(RUN, 7, 100)
    key, value = writer.record(1)
    damaged = value[:-1] + bytes([value[-1] ^ 1])
    assert (
        len({checksum(key, value), checksum(key, damaged), checksum(b"7-2", value), checksum(*writer.record(2))}) == 4
    )
