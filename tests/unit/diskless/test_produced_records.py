"""Single records of a batch: keys and times, compared with another client's reader, and invalid records."""

from __future__ import annotations

import random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from proxy.diskless.produce_rules import prepare_batch, rules_of
from proxy.diskless.produced_records import MOST_RECORD_ERRORS, RecordRules, newest_time
from proxy.protocol.errors import INVALID_RECORD, INVALID_TIMESTAMP
from proxy.records.batches import HEADER_BYTES, BatchHeader, RecordsError, check_batch, read_header
from proxy.records.compression import decompress

NOW_MS = 1_700_000_000_000
LARGE = 1 << 24
KEYED = RecordRules(0, 2**63, check_keys=True, partition="topic-3")
NO_KEY = "Compacted topic cannot accept message without key in topic partition topic-3"
keys = st.one_of(st.none(), st.binary(max_size=200), st.binary(min_size=64, max_size=64).map(lambda one: one * 200))
records = st.lists(st.tuples(keys, st.none() | st.binary(max_size=100), st.integers(-(2**40), 2**40)), min_size=1)


def keyed_batch(made, codec: int = 0) -> bytearray:
    """A record for each key, value, and time after NOW_MS."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, LARGE)
    for offset, (key, value, after_ms) in enumerate(made):
        assert builder.append(offset, NOW_MS + after_ms, key, value, []) is not None
    return bytearray(builder.build())


def refusal(data: bytes, header: BatchHeader, rules: RecordRules) -> RecordsError | None:
    try:
        newest_time(data, header, rules)
    except RecordsError as error:
        return error
    return None


def content(batch: bytearray) -> tuple[bytes, BatchHeader]:
    header = read_header(batch)
    return bytes(decompress(header.compression, memoryview(batch)[HEADER_BYTES:], LARGE)), header


@given(made=records, codec=st.integers(0, 4))
def test_records_without_a_key_are_named_and_others_are_not(made, codec: int) -> None:
    batch = keyed_batch(made, codec)
    keyless = [record.offset for record in DefaultRecordBatch(bytes(batch)) if record.key is None]
    if keyless:
        with pytest.raises(RecordsError) as caught:
            newest_time(*content(batch), KEYED)
        assert caught.value.error_code == INVALID_RECORD
        assert caught.value.record_errors == tuple((place, NO_KEY) for place in keyless[:MOST_RECORD_ERRORS])
        assert f"due to {min(len(keyless), MOST_RECORD_ERRORS)} record errors in total" in str(caught.value)
    else:
        assert newest_time(*content(batch), KEYED) == max(NOW_MS + after_ms for _, _, after_ms in made)
    everything = RecordRules(-(2**62), 2**62)
    assert newest_time(*content(batch), everything) == max(-1, *(NOW_MS + after_ms for _, _, after_ms in made))


def test_the_text_for_all_of_them_shows_three_as_brokers_do() -> None:
    with pytest.raises(RecordsError) as caught:
        newest_time(*content(keyed_batch([(None, b"v", 0)] * 4)), KEYED)
    shown = ", ".join(f"RecordError(batchIndex={place}, message='{NO_KEY}')" for place in range(3))
    assert str(caught.value) == (
        "One or more records have been rejected due to 4 record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )


def test_wrong_times_take_precedence() -> None:
    rules = KEYED._replace(earliest_ms=NOW_MS, latest_ms=NOW_MS + 10)
    made = [(None, b"v", 500), (b"k", b"v", 11), (b"k", b"v", 5), (b"", b"v", -1)]
    with pytest.raises(RecordsError) as caught:
        newest_time(*content(keyed_batch(made)), rules)
    assert caught.value.error_code == INVALID_TIMESTAMP
    assert [place for place, _ in caught.value.record_errors] == [0, 1, 3]
    assert caught.value.record_errors[0][1] == NO_KEY, "of one that is wrong in both ways, the key is"
    assert caught.value.record_errors[2][1].startswith(f"Timestamp {NOW_MS - 1} of message with offset 3 is out")
    stamped = rules._replace(check_times=False, check_keys=False)
    assert newest_time(*content(keyed_batch(made)), stamped) == NOW_MS + 500


@given(st.data())
def test_arbitrary_bytes_are_rejected_or_read(data) -> None:
    """Parse, or the one error: nothing else, whatever the bytes."""
    good, header = content(keyed_batch([(b"key-%d" % number, b"v" * 70, number) for number in range(5)]))
    broken = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    broken = broken[: data.draw(st.integers(0, len(broken)))]
    refused = refusal(bytes(broken), header, KEYED)
    assert refused is None or refused.error_code == INVALID_RECORD


@given(st.binary(max_size=300), st.integers(1, 50))
def test_any_bytes_at_all(data: bytes, count: int) -> None:
    header = content(keyed_batch([(b"k", b"v", 0)]))[1]._replace(record_count=count)
    refused = refusal(data, header, RecordRules(0, 1, check_keys=True))
    assert refused is None or refused.error_code in (INVALID_RECORD, INVALID_TIMESTAMP)


@pytest.mark.parametrize("codec", range(5))
def test_every_batch_for_a_compacted_topic_is_looked_at(codec: int) -> None:
    rules = rules_of({"cleanup.policy": "compact,delete"})._replace(partition="topic-3")
    chance = random.Random(codec)
    limits = {"max_decompressed_bytes": LARGE, "max_records": 5}
    for keyless in ([], [2], [0, 4]):
        made = [(None if place in keyless else b"key", chance.randbytes(50), place) for place in range(5)]
        batch = keyed_batch(made, codec)
        header = check_batch(memoryview(batch), max_message_bytes=LARGE)
        assert rules.needs_preparing(header, NOW_MS)
        assert not rules_of({}).needs_preparing(header, NOW_MS)
        if keyless:
            with pytest.raises(RecordsError) as caught:
                prepare_batch(batch, header, rules, NOW_MS, **limits)
            assert caught.value.record_errors == tuple((place, NO_KEY) for place in keyless)
        else:
            assert bytes(prepare_batch(batch, header, rules, NOW_MS, **limits)[0]) == batch
