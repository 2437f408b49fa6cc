"""Rules that random histories meet rarely, each in a history of a few lines."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.judge.findings import MAX_FINDINGS_PER_KIND, Anomaly, Value
from proxy.judge.judge import judge
from proxy.judge.operations import (
    Ack,
    Assign,
    Begin,
    Client,
    ClientKind,
    Close,
    Done,
    End,
    Ended,
    Error,
    Fail,
    Isolation,
    Log,
    Note,
    Operation,
    Outcome,
    Poll,
    Reached,
    Run,
    Send,
    Without,
)
from proxy.judge.report import as_json, text

PLAIN, IDEMPOTENT, TRANSACTIONAL, READER, COMMITTED_READER, FINAL = range(6)
BOUND_US = 120_000_000
"""Time after which a client is stuck."""


def start() -> list[Operation]:
    return [
        Run(run="r", topics={"t": 1}),
        Client(client=PLAIN, kind=ClientKind.PLAIN),
        Client(client=IDEMPOTENT, kind=ClientKind.IDEMPOTENT),
        Client(client=TRANSACTIONAL, kind=ClientKind.TRANSACTIONAL),
        Client(client=READER, kind=ClientKind.ASSIGN, view="assign"),
        Client(client=COMMITTED_READER, kind=ClientKind.ASSIGN, view="committed", isolation=Isolation.COMMITTED),
        Client(client=FINAL, kind=ClientKind.FINAL, view="final"),
    ]


def send(client: int, count: int = 1, first: int = 0, transaction: int = -1, at_us: int = 0) -> Send:
    return Send(client=client, topic="t", partition=0, first=first, count=count, transaction=transaction, at_us=at_us)


def ack(client: int, *records: tuple[int, int], at_us: int = 0) -> Ack:
    return Ack(client=client, topic="t", partition=0, records=list(records), at_us=at_us)


def poll(client: int, *records: tuple[int, int, int], at_us: int = 0) -> Poll:
    return Poll(client=client, topic="t", partition=0, records=list(records), at_us=at_us)


def end(high: int, *records: tuple[int, int, int], low: int = 0) -> list[Operation]:
    """Let the final reader get these records."""
    return [
        Log(topic="t", partition=0, low=low, high=high),
        poll(FINAL, *records),
        Reached(client=FINAL, topic="t", partition=0),
        Done(),
    ]


def everywhere(*records: tuple[int, int, int]) -> list[Operation]:
    return [poll(READER, *records), poll(COMMITTED_READER, *records)]


def kinds(operations: Sequence[Operation]) -> set[Anomaly]:
    return set(judge(operations).totals)


def test_a_write_without_an_answer_may_be_there_or_not() -> None:
    sends = [*start(), send(PLAIN, 3), ack(PLAIN, (0, 0)), Fail(client=PLAIN, numbers=[1, 2], error="_MSG_TIMED_OUT")]
    found = [(0, PLAIN, 0), (1, PLAIN, 2)]
    verdict = judge([*sends, *everywhere(*found), *end(2, *found)])
    assert verdict.ok
    assert (verdict.counts.failed, verdict.counts.failed_but_read) == (2, 1)
    assert verdict.counts.errors == {"plain: _MSG_TIMED_OUT": 2}


def test_a_plain_producers_record_may_be_there_twice_and_an_idempotent_ones_not() -> None:
    for producer, expected in ((PLAIN, set()), (IDEMPOTENT, {Anomaly.DUPLICATE})):
        twice = [(0, producer, 0), (1, producer, 0)]
        operations = [*start(), send(producer), ack(producer, (0, 0)), *everywhere(*twice), *end(2, *twice)]
        assert kinds(operations) == expected
    assert judge([*start(), send(PLAIN), ack(PLAIN, (0, 0)), *everywhere(*twice)]).counts.repeated == 0


def test_an_idempotent_producer_whose_records_time_out_may_repeat_what_has_no_answer_then() -> None:
    """And nothing else: neither what was acknowledged before or sent after, nor after other errors."""
    client = IDEMPOTENT
    for error, expected in (("_MSG_TIMED_OUT", 0), ("_PURGE_QUEUE", 1)):
        twice = [(0, client, 0), (1, client, 1), (2, client, 1)]
        operations = [
            *(*start(), send(client, 3), ack(client, (0, 0)), Fail(client=client, numbers=[2], error=error)),
            *(ack(client, (1, 2)), *everywhere(*twice), *end(3, *twice)),
        ]
        verdict = judge(operations)
        assert verdict.totals == ({Anomaly.DUPLICATE: 1} if expected else {})
        assert verdict.counts.repeated == 1 - expected
    for first, repeated in ((0, 0), (1, 3)):
        fail = Fail(client=client, numbers=[2], error="_MSG_TIMED_OUT")
        sends = [send(client, 3), ack(client, (0, 0)), fail, send(client, 1, first=3), ack(client, (1, 1), (3, 2))]
        found = [(0, client, 0), (1, client, 1), (2, client, 3), (3, client, repeated)]
        assert kinds([*start(), *sends, *everywhere(*found), *end(4, *found)]) == {Anomaly.DUPLICATE}, first


def test_a_record_that_was_sent_again_is_where_it_was_acknowledged() -> None:
    fail = Fail(client=IDEMPOTENT, numbers=[1], error="_MSG_TIMED_OUT")
    found = [(0, IDEMPOTENT, 0)]
    operations = [*start(), send(IDEMPOTENT, 2), fail, ack(IDEMPOTENT, (0, 1)), *everywhere(*found), *end(2, *found)]
    assert kinds(operations) == {Anomaly.INCONSISTENT_OFFSETS}


def test_a_transaction_has_no_record_twice_whatever_timed_out() -> None:
    number = {"client": TRANSACTIONAL, "transaction": 0}
    fail = Fail(client=TRANSACTIONAL, numbers=[1], error="_MSG_TIMED_OUT")
    sends = [Begin(**number), send(TRANSACTIONAL, 2, transaction=0), fail, ack(TRANSACTIONAL, (0, 0))]
    twice = [(0, TRANSACTIONAL, 0), (1, TRANSACTIONAL, 0)]
    assert kinds([*start(), *sends, poll(READER, *twice), *end(2, *twice)]) == {Anomaly.DUPLICATE}


def test_a_log_that_ends_below_an_acknowledged_record_has_lost_it() -> None:
    operations = [*start(), send(PLAIN, 2), ack(PLAIN, (0, 0), (1, 1)), *everywhere((0, PLAIN, 0), (1, PLAIN, 1))]
    verdict = judge([*operations, *end(1, (0, PLAIN, 0))])
    assert verdict.totals == {Anomaly.LOST_WRITE: 1}
    (finding,) = verdict.findings
    assert finding.values == (Value(PLAIN, 1),)
    assert finding.offsets == (1,)
    assert "from 0 to 1; read before the end by assign, committed" in finding.message
    assert [operation["op"] for operation in finding.operations] == ["send", "ack", "poll", "poll"]


def test_a_record_that_retention_deleted_is_not_lost() -> None:
    operations = [*start(), send(PLAIN, 2), ack(PLAIN, (0, 0), (1, 1)), *everywhere((1, PLAIN, 1))]
    verdict = judge([*operations, *end(2, (1, PLAIN, 1), low=1)])
    assert verdict.ok
    assert verdict.counts.deleted == 1


def test_two_producers_that_were_given_one_offset() -> None:
    operations = [*start(), send(PLAIN), send(IDEMPOTENT), ack(PLAIN, (0, 7)), ack(IDEMPOTENT, (0, 7))]
    verdict = judge(operations)
    assert verdict.totals == {Anomaly.INCONSISTENT_OFFSETS: 1}
    assert verdict.findings[0].values == (Value(PLAIN, 0), Value(IDEMPOTENT, 0))


def test_a_record_of_others_where_one_was_acknowledged() -> None:
    operations = [*start(), send(PLAIN), ack(PLAIN, (0, 0)), poll(READER, (0, -1, 0))]
    assert kinds(operations) == {Anomaly.INCONSISTENT_OFFSETS}


def transaction(commit: bool, outcome: Outcome, *, end_it: bool = True) -> list[Operation]:
    number = {"client": TRANSACTIONAL, "transaction": 0}
    ending = [End(**number, commit=commit), Ended(**number, outcome=outcome)] if end_it else []
    sends = [send(TRANSACTIONAL, 2, transaction=0), ack(TRANSACTIONAL, (0, 0), (1, 1))]
    return [*start(), Begin(**number), *sends, *ending]


BOTH = [(0, TRANSACTIONAL, 0), (1, TRANSACTIONAL, 1)]


def test_records_of_an_aborted_transaction_belong_to_uncommitted_readers_only() -> None:
    aborted = transaction(False, Outcome.ABORTED)
    assert kinds([*aborted, poll(READER, *BOTH), *end(3, *BOTH)]) == set()
    assert kinds([*aborted, *everywhere(*BOTH), *end(3, *BOTH)]) == {Anomaly.ABORTED_READ}


def test_records_of_an_open_transaction() -> None:
    still_open = transaction(True, Outcome.UNKNOWN, end_it=False)
    assert kinds([*still_open, poll(READER, *BOTH), *end(3, *BOTH)]) == set()
    assert kinds([*still_open, *everywhere(*BOTH), *end(3, *BOTH)]) == {Anomaly.PRECOMMITTED_READ}


def test_a_transaction_with_an_unknown_outcome_is_committed_as_a_whole_or_not_at_all() -> None:
    unknown = transaction(True, Outcome.UNKNOWN)
    assert kinds([*unknown, poll(READER, *BOTH), *end(3, *BOTH)]) == set()
    assert kinds([*unknown, *everywhere(*BOTH), *end(3, *BOTH)]) == set()
    half = [poll(READER, *BOTH), poll(COMMITTED_READER, BOTH[0])]
    assert kinds([*unknown, *half, *end(3, *BOTH)]) == {Anomaly.UNSEEN}


def test_gaps_of_markers_and_unknown_offsets_are_no_skips() -> None:
    operations = [*start(), send(PLAIN, 2), ack(PLAIN, (0, 0), (1, 9))]
    found = [(0, PLAIN, 0), (9, PLAIN, 1)]
    assert kinds([*operations, *everywhere(*found), *end(10, *found)]) == set()


def test_a_new_assignment_may_begin_earlier() -> None:
    operations = [*start(), send(PLAIN, 2), ack(PLAIN, (0, 0), (1, 1)), *everywhere((0, PLAIN, 0), (1, PLAIN, 1))]
    again = [Assign(client=READER, topic="t", partitions=[0]), poll(READER, (1, PLAIN, 1))]
    last = end(2, (0, PLAIN, 0), (1, PLAIN, 1))
    assert kinds([*operations, *again, *last]) == set()
    assert kinds([*operations, again[1], *last]) == {Anomaly.NONMONOTONIC_POLL}


def test_a_producer_without_an_acknowledgement_for_too_long() -> None:
    for later, expected in ((BOUND_US, set()), (BOUND_US + 2, {Anomaly.STUCK})):
        operations = [*start(), send(PLAIN, at_us=1), Fail(client=PLAIN, numbers=[0], at_us=later // 2)]
        operations += [send(PLAIN, first=1, at_us=later // 2), ack(PLAIN, (1, 0), at_us=later)]
        assert kinds(operations) == expected
    (finding,) = judge(operations).findings
    assert finding.message == (
        "plain producer 0 had records to send, and none was acknowledged for 120.0 s, from 0.0 s on"
    )
    assert [operation["line"] for operation in finding.operations] == [8, 11]


def test_a_producer_that_has_nothing_to_do_is_not_stuck() -> None:
    operations = [*start(), send(PLAIN, at_us=1), ack(PLAIN, (0, 0), at_us=2), *everywhere((0, PLAIN, 0))]
    operations += [send(PLAIN, first=1, at_us=2 * BOUND_US), ack(PLAIN, (1, 1), at_us=2 * BOUND_US + 1)]
    assert kinds(operations) == set()


def test_a_transactional_producer_that_never_gets_its_producer_id_is_stuck() -> None:
    assert kinds([*start(), Close(client=TRANSACTIONAL, at_us=BOUND_US + 1)]) == {Anomaly.STUCK}
    assert kinds([*start(), Close(client=PLAIN, at_us=BOUND_US + 1)]) == set()


def test_a_view_that_is_behind_for_too_long() -> None:
    operations = [*start(), send(PLAIN, at_us=1), ack(PLAIN, (0, 0), at_us=2)]
    late = [poll(READER, (0, PLAIN, 0), at_us=BOUND_US + 3), poll(COMMITTED_READER, (0, PLAIN, 0), at_us=5)]
    verdict = judge([*operations, *late, *end(1, (0, PLAIN, 0))])
    assert verdict.totals == {Anomaly.STUCK: 1}
    assert verdict.findings[0].message.startswith("assign got no record though there were some for 120.0 s")
    assert judge([*operations, *late, *end(1, (0, PLAIN, 0))], stuck_seconds=121).ok


def test_nothing_that_is_acknowledged_is_stuck_too() -> None:
    operations = [*start(), send(PLAIN), Fail(client=PLAIN, numbers=[0]), *end(0)]
    assert kinds(operations) == {Anomaly.STUCK}


def test_a_view_that_the_cluster_does_not_support_is_not_judged() -> None:
    operations = [*start(), send(PLAIN), ack(PLAIN, (0, 0)), poll(READER, (0, PLAIN, 0))]
    without = Without(view="committed", reason="UNSUPPORTED_VERSION")
    assert kinds([*operations, *end(1, (0, PLAIN, 0))]) == {Anomaly.UNSEEN}
    verdict = judge([*operations, without, *end(1, (0, PLAIN, 0))])
    assert verdict.ok
    assert verdict.notes == ("without committed: UNSUPPORTED_VERSION",)
    assert "committed" not in verdict.counts.read


def test_findings_of_a_kind_are_counted_and_some_are_kept() -> None:
    operations = [*start(), send(PLAIN, 100), ack(PLAIN, *((number, number) for number in range(100)))]
    verdict = judge([*operations, *end(0)])
    assert verdict.totals == {Anomaly.LOST_WRITE: 100}
    assert len(verdict.findings) == MAX_FINDINGS_PER_KIND


def test_the_report_names_what_was_found() -> None:
    operations = [*start(), Note(text="a fact"), send(PLAIN, 2), ack(PLAIN, (0, 0), (1, 1))]
    operations += [Error(client=READER, error="_TRANSPORT"), *everywhere((0, PLAIN, 0)), *end(2, (0, PLAIN, 0))]
    verdict = judge(operations)
    report = text(verdict)
    assert "lost-write: 1\n  t[0]: plain record 0:1 is acknowledged at offset 1" in report
    assert "line 10, 0.000 s: ack: client 0, topic t, partition 0, records [[1, 1]]" in report
    assert "note          a fact" in report
    assert "assign: _TRANSPORT 1" in report
    assert report.endswith("Anomalies: lost-write 1")
    (finding,) = as_json(verdict)["findings"]
    assert (finding["anomaly"], finding["values"], finding["offsets"]) == ("lost-write", ["0:1"], [1])
    assert text(judge(operations[:-1])).endswith(
        "The history has no end: the run was cut off. Losses cannot be judged."
    )
