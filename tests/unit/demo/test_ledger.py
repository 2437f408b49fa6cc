"""The books of a load: the problems that they find, and that they find no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.demo.ledger import FOREIGN_PRODUCER, MAX_FINDINGS, NOT_MEASURED, UNKNOWN_OFFSET, Ledger
from proxy.demo.tally import Tally, TopicTally

RACKS = ("rack-a", "rack-b", "rack-c")
PRODUCER = 4


def row(sequence: int, offset: int | None = None, checksum: int = 99, partition: int = 0) -> tuple[int, ...]:
    return PRODUCER, sequence, partition, sequence if offset is None else offset, checksum, 1000


def books(count: int, *, acknowledged: bool = True) -> Ledger:
    """`count` records, each at the offset of its sequence."""
    ledger = Ledger("t", RACKS)
    if acknowledged:
        ledger.acknowledged([row(sequence) for sequence in range(count)])
    return ledger


def read_everywhere(ledger: Ledger, rows: list[tuple[int, ...]]) -> TopicTally:
    for rack in RACKS:
        ledger.read(rack, rows)
    return ledger.tally(final=True)


def wrongs(tally: TopicTally) -> dict[str, int]:
    found = {name: getattr(tally, name) for name in ("lost", "duplicated", "disordered", "mismatched")}
    return {name: count for name, count in found.items() if count}


def test_every_acknowledged_record_is_read_once_everywhere() -> None:
    ledger = books(3)
    assert not ledger.settled()
    tally = read_everywhere(ledger, [row(0), row(1), row(2)])
    assert tally.right
    assert ledger.settled()
    assert (tally.produced, tally.consumed, tally.failed) == (3, 3, 0)
    assert tally.read == dict.fromkeys(RACKS, 3)
    assert not tally.findings


def test_a_load_without_records_is_not_right() -> None:
    assert not Ledger("t", RACKS).tally().right


def test_a_record_read_before_its_acknowledgement_counts_as_produced_only_then() -> None:
    ledger = books(1, acknowledged=False)
    tally = read_everywhere(ledger, [row(0)])
    assert (tally.produced, tally.consumed) == (0, 0)
    ledger.acknowledged([row(0)])
    assert ledger.tally().right
    assert ledger.tally().consumed == 1


def test_a_record_that_one_rack_misses_is_lost() -> None:
    ledger = books(3)
    ledger.read("rack-a", [row(0), row(1), row(2)])
    ledger.read("rack-b", [row(0), row(2)])
    ledger.read("rack-c", [row(0), row(2)])
    tally = ledger.tally(final=True)
    assert wrongs(tally) == {"lost": 1}
    assert tally.consumed == 2
    assert tally.findings == ("t: record 1 of producer 4, partition 0 offset 1, was not read in rack-b, rack-c",)
    assert not ledger.tally().findings  # while the load runs it is merely under way


def test_a_record_stored_twice_is_one_duplicate() -> None:
    tally = read_everywhere(books(2), [row(0), row(1), row(0, offset=2), row(0, offset=3)])
    assert wrongs(tally) == {"duplicated": 1}
    assert "record 0 of producer 4 was read again in rack-a at partition 0 offset 2" in tally.findings[0]


def test_an_offset_that_one_rack_reads_twice_is_a_duplicate() -> None:
    ledger = books(1)
    read_everywhere(ledger, [row(0)])
    ledger.read("rack-b", [row(0)])
    assert wrongs(ledger.tally()) == {"duplicated": 1}


def test_acknowledged_records_come_in_order_within_a_partition() -> None:
    tally = read_everywhere(books(3), [row(0), row(2), row(1)])
    # Offset 1 after offset 2: the record is late by either measure, and counted once.
    assert wrongs(tally) == {"disordered": 1}
    assert "record 1 of producer 4 was read after a later one" in tally.findings[0]


def test_order_is_asked_for_within_a_partition_only() -> None:
    ledger = Ledger("t", RACKS)
    sent = [row(0, partition=0, offset=0), row(1, partition=1, offset=0), row(2, partition=0, offset=1)]
    ledger.acknowledged(sent)
    assert read_everywhere(ledger, [sent[0], sent[2], sent[1]]).right


def test_a_failed_record_may_be_missing_or_late_but_not_there_twice() -> None:
    ledger = books(0)
    ledger.acknowledged([row(2, offset=0)])
    ledger.failed([(PRODUCER, 0, "_MSG_TIMED_OUT"), (PRODUCER, 1, "_MSG_TIMED_OUT")])
    tally = read_everywhere(ledger, [row(2, offset=0), row(0, offset=1)])
    assert tally.right
    assert (tally.produced, tally.failed, tally.failed_but_read) == (1, 2, 1)
    assert tally.errors == {"_MSG_TIMED_OUT": 2}
    assert wrongs(read_everywhere(ledger, [row(0, offset=2)])) == {"duplicated": 1}


def test_a_failure_reported_after_the_read_counts_as_read() -> None:
    ledger = books(1)
    read_everywhere(ledger, [row(0), row(1)])
    ledger.failed([(PRODUCER, 1, "_PURGE_INFLIGHT")])
    assert ledger.tally().failed_but_read == 1


@pytest.mark.parametrize("seen", [row(0, checksum=98), row(0, offset=5), row(0, partition=1)])
def test_bytes_and_place_are_the_same_in_every_rack_and_as_acknowledged(seen: tuple[int, ...]) -> None:
    ledger = books(1)
    ledger.read("rack-a", [row(0)])
    ledger.read("rack-b", [seen])
    ledger.read("rack-c", [row(0)])
    assert wrongs(ledger.tally()) == {"mismatched": 1}
    assert "record 0 of producer 4 was read in rack-b" in ledger.tally().findings[0]


def test_an_acknowledgement_that_differs_from_what_was_read_is_found() -> None:
    ledger = books(0)
    ledger.read("rack-a", [row(0, offset=7)])
    ledger.acknowledged([row(0, offset=8)])
    assert ledger.tally().mismatched == 1


def test_without_an_acknowledged_offset_only_the_racks_must_agree() -> None:
    ledger = books(0)
    ledger.acknowledged([row(0, offset=UNKNOWN_OFFSET), row(1, offset=UNKNOWN_OFFSET)])
    ledger.read("rack-a", [row(0, offset=7), row(1, offset=8)])
    ledger.read("rack-b", [row(0, offset=7), row(1, offset=9)])
    assert wrongs(ledger.tally()) == {"lost": 2, "mismatched": 1}


def test_a_record_that_nobody_sent_is_found() -> None:
    ledger = books(1)
    tally = read_everywhere(ledger, [row(0), (FOREIGN_PRODUCER, 0, 0, 1, 0, NOT_MEASURED)])
    assert tally.mismatched == len(RACKS)
    assert not tally.right


def test_latencies_that_do_not_count_are_left_out() -> None:
    ledger = books(0)
    ledger.acknowledged([(*row(0)[:5], NOT_MEASURED)])
    ledger.read("rack-a", [(*row(0)[:5], NOT_MEASURED)])
    tally = ledger.tally()
    assert (tally.produce_p50_ms, tally.e2e_p99_ms) == (None, None)
    ledger.read("rack-b", [row(0)])
    assert ledger.tally().e2e_p99_ms == pytest.approx(1, rel=0.02)


def test_only_the_first_few_findings_are_reported() -> None:
    ledger = books(100)
    tally = ledger.tally(final=True)
    assert tally.lost == 100
    assert len(tally.findings) == MAX_FINDINGS


def test_a_consumer_that_could_not_go_on_makes_the_whole_wrong() -> None:
    topic = read_everywhere(books(1), [row(0)])
    assert Tally({"classic": topic}).right
    stuck = Tally({"classic": topic}, ("the consumer is stuck",))
    assert not stuck.right
    assert stuck.findings == ("the consumer is stuck",)


@given(st.data())
def test_whatever_order_the_news_comes_in_the_count_is_that_of_sets(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 2000), "records")
    sequences = range(count)
    failed = data.draw(st.sets(st.sampled_from(sequences), max_size=20), "failed")
    missing = {rack: data.draw(st.sets(st.sampled_from(sequences), max_size=5), rack) for rack in RACKS}
    again = data.draw(st.sets(st.sampled_from(sequences), max_size=5), "read again")
    news = [("acknowledged", [row(sequence)]) for sequence in sequences if sequence not in failed]
    news += [("failed", [(PRODUCER, sequence, "error")]) for sequence in failed]
    for rack in RACKS:
        rows = [row(sequence) for sequence in sequences if sequence not in missing[rack]]
        news.append((rack, rows))
    news = data.draw(st.permutations(news) if count < 100 else st.just(news[::-1]), "order")
    ledger = Ledger("t", RACKS)
    for about, rows in news:
        if about in RACKS:
            ledger.read(about, rows)  # type: ignore[arg-type]
        else:
            getattr(ledger, about)(rows)
    ledger.read("rack-b", [row(sequence, offset=count + sequence) for sequence in sorted(again - missing["rack-b"])])

    tally = ledger.tally(final=True)
    lost = set().union(*missing.values()) - failed
    assert (tally.produced, tally.failed) == (count - len(failed), len(failed))
    assert tally.lost == len(lost)
    assert tally.consumed == tally.produced - tally.lost
    assert tally.duplicated == len(again - missing["rack-b"])
    assert (tally.disordered, tally.mismatched) == (0, 0)
    assert tally.read == {rack: count - len(missing[rack]) for rack in RACKS}
    assert tally.failed_but_read == len(failed - set.intersection(*missing.values()))
    assert ledger.settled() == (not lost)
