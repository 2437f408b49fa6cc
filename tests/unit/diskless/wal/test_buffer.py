"""The WAL buffer under delays and failures: every batch is settled once, in order, with its true outcome."""

from __future__ import annotations

import asyncio
import gc

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.coordinator.interface import MAX_BATCHES_PER_RUN, CoordinatorUnavailable, RunAnswer
from proxy.diskless.wal.outcome import Outcome
from proxy.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    REQUEST_TIMED_OUT,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.unit.diskless.wal.buffer_doubles import (
    BATCH,
    HEADER,
    ONE_BATCH,
    TOPIC,
    Coordinator,
    Producer,
    Storage,
    make,
    turns,
)


async def test_batches_wait_until_the_buffer_is_full():
    wal = await make(max_bytes=2 * ONE_BATCH)
    producer = Producer(wal)
    producer.append()
    assert wal.buffered_bytes == ONE_BATCH
    producer.append()
    assert wal.buffered_bytes == 0
    assert wal.segments_underway == 1
    await wal.drain()
    assert [(outcome.error_code, outcome.base_offset) for _, _, outcome in producer.outcomes] == [(0, 0), (0, 1)]


async def test_no_run_is_longer_than_what_one_call_commits():
    """The store serves no other request meanwhile."""
    coordinator = Coordinator()
    runs: list[int] = []
    commit = coordinator.commit

    async def counted(segment, proposed, **options):
        runs.extend(len(run.batches) for run in proposed)
        return await commit(segment, proposed, **options)

    coordinator.commit = counted
    wal = await make(coordinator=coordinator, max_bytes=1 << 30)
    producer = Producer(wal)
    for _ in range(3 * MAX_BATCHES_PER_RUN - 1):
        producer.append(0)
    producer.append(1)
    await wal.drain()
    assert sorted(runs) == [1, MAX_BATCHES_PER_RUN - 1, MAX_BATCHES_PER_RUN, MAX_BATCHES_PER_RUN]
    offsets = [outcome.base_offset for partition, _, outcome in producer.outcomes if partition == 0]
    assert offsets == list(range(3 * MAX_BATCHES_PER_RUN - 1))


async def test_batches_wait_no_longer_than_the_interval():
    wal = await make(interval_s=0.001)
    producer = Producer(wal)
    producer.append()
    await asyncio.wait_for(producer.notified.wait(), 10)
    assert producer.codes() == {0: NONE}


async def test_coordinates_of_a_commit_are_known_before_any_producer_gets_its_answer():
    heard = []
    wal = await make(
        heard=lambda answers: heard.extend((run.high_watermark, len(producer.outcomes)) for run in answers)
    )
    producer = Producer(wal)
    producer.append()
    await wal.drain()
    assert (heard, producer.codes()) == ([(1, 0)], {0: NONE})


async def test_nothing_is_answered_before_the_upload_and_the_commit():
    storage = Storage()
    storage.gated = True
    coordinator = Coordinator()
    wal = await make(storage, coordinator)
    producer = Producer(wal)
    producer.append()
    wal.flush()
    await turns()
    assert (producer.outcomes, coordinator.logs[TOPIC, 0].end) == ([], 0)
    storage.gates[0].set()
    await wal.drain()
    assert coordinator.logs[TOPIC, 0].end == 1
    assert producer.codes() == {0: NONE}


async def test_a_slow_upload_delays_only_the_partitions_that_it_shares():
    storage = Storage()
    storage.gated = True
    wal = await make(storage)
    producer = Producer(wal)
    for partition in (0, 0, 1):
        producer.append(partition)
        wal.flush()
    await turns()
    storage.gates[1].set()
    storage.gates[2].set()
    await turns()
    assert [(partition, number) for partition, number, _ in producer.outcomes] == [(1, 0)]
    storage.gates[0].set()
    await wal.drain()
    assert [outcome.base_offset for partition, _, outcome in producer.outcomes if partition == 0] == [0, 1]


async def test_uploads_at_a_time_are_bounded():
    storage = Storage([(5, True)] * 10)
    wal = await make(storage, max_uploads=3)
    producer = Producer(wal)
    for number in range(10):
        producer.append(number % 4)
        wal.flush()
    await wal.drain()
    assert storage.most_at_a_time == 3
    assert len(producer.outcomes) == 10


async def test_a_failed_upload_fails_the_later_batches_of_its_partitions_and_no_others():
    storage = Storage([(3, False), (0, True)])
    coordinator = Coordinator()
    wal = await make(storage, coordinator)
    producer = Producer(wal)
    producer.append(0)
    wal.flush()
    producer.append(0)
    producer.append(1)
    wal.flush()
    producer.append(0)
    producer.append(2)
    await turns()
    assert producer.codes(0) == {0: KAFKA_STORAGE_ERROR, 1: KAFKA_STORAGE_ERROR, 2: KAFKA_STORAGE_ERROR}
    await wal.drain()
    assert (producer.codes(1), producer.codes(2)) == ({0: NONE}, {0: NONE})
    assert coordinator.logs[TOPIC, 0].end == 0


async def test_a_commit_without_answer_is_tried_again():
    coordinator = Coordinator([(0, True, False), (0, True, True)])
    wal = await make(coordinator=coordinator, commit_timeout_s=60.0)
    producer = Producer(wal)
    producer.append()
    await wal.drain()
    assert producer.codes() == {0: NONE}
    assert coordinator.logs[TOPIC, 0].end == 1


async def test_a_commit_that_nobody_knows_of_is_answered_as_such():
    wal = await make(coordinator=Coordinator([(0, True, False)]))
    producer = Producer(wal)
    producer.append()
    await wal.drain()
    assert producer.codes() == {0: REQUEST_TIMED_OUT}


async def test_a_log_that_is_gone_fails_alone():
    wal = await make(partitions=1)
    producer = Producer(wal)
    producer.append(0)
    producer.append(3)
    await wal.drain()
    assert (producer.codes(0), producer.codes(3)) == ({0: NONE}, {0: UNKNOWN_TOPIC_OR_PARTITION})


async def test_a_producer_that_gets_a_failure_may_append_again():
    """A paused connection continues to read when it gets an answer: new batches arrive during the settling."""
    wal = await make(Storage([(0, False)]), max_bytes=ONE_BATCH)
    producer = Producer(wal)

    def again(outcome):
        producer.outcomes.append((0, -1, outcome))
        producer.append(1)

    for _ in range(3):
        wal.append(TOPIC, 0, BATCH, HEADER, again)
    producer.append(0)
    producer.append(2)
    await wal.drain()
    gc.collect()  # a task that broke is reported now, not in the midst of another test
    codes = [(number, outcome.error_code) for partition, number, outcome in producer.outcomes if partition == 0]
    assert codes == [(-1, KAFKA_STORAGE_ERROR)] * 3 + [(0, KAFKA_STORAGE_ERROR)]
    assert (producer.codes(1), producer.codes(2)) == ({0: NONE, 1: NONE, 2: NONE}, {0: NONE})
    assert wal.segments_underway == 0


async def test_an_answer_that_cannot_be_sent_harms_no_other_producer():
    wal = await make()
    producer = Producer(wal)

    def fail(outcome):
        raise ValueError("a fault in one connection")

    producer.append(0)
    wal.append(TOPIC, 0, BATCH, HEADER, fail)
    producer.append(0)
    producer.append(1)
    await wal.drain()
    gc.collect()
    assert (producer.codes(0), producer.codes(1)) == ({0: NONE, 1: NONE}, {0: NONE})


async def test_closing_settles_every_batch():
    storage = Storage()
    storage.gated = True
    wal = await make(storage)
    producer = Producer(wal)
    producer.append(0)
    wal.flush()
    await turns()
    producer.append(1)
    wal.flush()
    producer.append(2)
    await wal.close()
    assert [code for number in range(3) for code in producer.codes(number).values()] == [KAFKA_STORAGE_ERROR] * 3


_STEP = st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 3))
"""A batch for a partition, whether the buffer is flushed after it, and the turns of the loop that pass."""
_UPLOAD = st.tuples(st.integers(0, 6), st.sampled_from([True, True, True, False]))
_COMMIT = st.tuples(st.integers(0, 6), st.booleans(), st.sampled_from([True, True, True, False]))


@settings(deadline=None)
@given(
    steps=st.lists(_STEP, max_size=25),
    uploads=st.lists(_UPLOAD, max_size=25),
    commits=st.lists(_COMMIT, max_size=25),
    most=st.integers(1, 4),
)
async def test_whatever_fails_order_and_outcomes_are_true(steps, uploads, commits, most):
    coordinator = Coordinator(commits)
    wal = await make(Storage(uploads), coordinator, max_uploads=most)
    producer = Producer(wal)
    for partition, flush, pause in steps:
        producer.append(partition)
        if flush:
            wal.flush()
        await turns(pause)
    await wal.drain()
    assert wal.segments_underway == 0
    for partition, count in producer.appended.items():
        mine = [(number, outcome) for where, number, outcome in producer.outcomes if where == partition]
        assert sorted(number for number, _ in mine) == list(range(count)), "each is settled once"
        accepted = [(number, outcome.base_offset) for number, outcome in mine if outcome.error_code == NONE]
        assert accepted == sorted(accepted), "batches of a partition keep their order"
        assert len({offset for _, offset in accepted}) == len(accepted)
        known = sum(outcome.error_code == NONE for _, outcome in mine)
        unknown = sum(outcome.error_code == REQUEST_TIMED_OUT for _, outcome in mine)
        assert known <= coordinator.logs[TOPIC, partition].end <= known + unknown, "what surely failed is not there"


@settings(deadline=None)
@given(uploads=st.lists(_UPLOAD, min_size=8, max_size=8), size=st.integers(1, 3))
async def test_an_idempotent_producer_never_leaves_a_hole(uploads, size):
    coordinator = Coordinator()
    wal = await make(Storage(uploads), coordinator, max_bytes=size * ONE_BATCH)
    producer = Producer(wal)
    for _ in range(8):
        producer.append(idempotent=True)
    await wal.drain()
    codes = producer.codes()
    succeeded = [number for number in range(8) if codes[number] == NONE]
    assert succeeded == list(range(len(succeeded)))


async def test_a_batch_that_comes_before_those_it_follows_is_held_and_delays_no_other():
    coordinator = Coordinator()
    wal = await make(coordinator=coordinator, out_of_order_hold_s=60.0)
    other = await make(coordinator=coordinator)
    producer = Producer(wal)
    producer.appended[0] = 1
    producer.append(0, idempotent=True)
    wal.flush()
    await turns()
    producer.append(0)
    wal.flush()
    await turns()
    assert producer.codes() == {2: NONE}, "one that is not idempotent goes past it"
    assert wal.holds.held_batches == 1
    Producer(other).append(0, idempotent=True)
    await other.drain()
    await wal.drain()
    assert [(number, outcome.error_code, outcome.base_offset) for _, number, outcome in producer.outcomes] == [
        (2, NONE, 0),
        (1, NONE, 2),
    ]


async def test_a_run_under_log_append_time_says_so():
    coordinator = Coordinator()
    wal = await make(coordinator=coordinator)
    outcomes: list[Outcome] = []
    wal.append(TOPIC, 0, BATCH, HEADER, outcomes.append)
    wal.append(TOPIC, 1, BATCH, HEADER, outcomes.append, log_append_time=True)
    await wal.drain()
    plain, stamped = (coordinator.logs[TOPIC, partition].rows[0] for partition in range(2))
    assert (plain.log_append_time, stamped.log_append_time) == (False, True)
    assert [outcome.append_time_ms for outcome in outcomes] == [-1, stamped.append_time_ms]


@pytest.mark.parametrize(("late_ms", "error_code"), [(0, NONE), (1, KAFKA_STORAGE_ERROR)])
async def test_a_segment_is_committed_until_its_object_may_be_taken_for_an_orphan(late_ms: int, error_code: int):
    now_ms = 1_000_000
    storage, coordinator = Storage(), Coordinator()
    coordinator._clock = lambda: now_ms
    storage.gated = True
    wal = await make(storage, coordinator, max_age_s=60.0)
    producer = Producer(wal)
    producer.append()
    wal.flush()
    await turns()
    now_ms += 60_000 + late_ms  # this process was stopped
    storage.gates[0].set()
    with structlog.testing.capture_logs() as logged:
        await wal.drain()
    assert producer.codes() == {0: error_code}
    assert len(coordinator.logs[TOPIC, 0].rows) == (error_code == NONE)
    assert [line["event"] for line in logged] == ["commit_too_late"] * late_ms
    assert wal._stats.refused_unseen_batches == late_ms
    assert (wal._stats.commit_seconds.count, wal._stats.commit_failures) == (1 - late_ms, late_ms)


@pytest.mark.parametrize(("late_ms", "error_code"), [(0, NONE), (1, REQUEST_TIMED_OUT)])
async def test_a_segment_gets_no_rows_when_its_first_ones_may_have_been_freed_and_its_object_deleted(
    late_ms: int, error_code: int
) -> None:
    """One shard has committed, and its log is emptied at once; the other one does not answer for long."""
    now_ms = 1_000_000

    class OneShardAway(Coordinator):
        away = True

        async def commit(self, segment, runs, *, not_after_ms=0):
            if self.away:
                await super().commit(segment, [run for run in runs if not run.partition], not_after_ms=not_after_ms)
                nonlocal now_ms
                now_ms += 5_000 + late_ms
                self.away = False
                raise CoordinatorUnavailable("one shard is away")
            return await super().commit(segment, runs, not_after_ms=not_after_ms)

    coordinator = OneShardAway()
    coordinator._clock = lambda: now_ms
    wal = await make(coordinator=coordinator, max_age_s=60.0, grace_s=5.0, commit_timeout_s=30.0)
    producer = Producer(wal)
    for partition in range(2):
        producer.append(partition)
    await wal.drain()
    assert list(producer.codes(1).values()) == [error_code]
    assert len(coordinator.logs[TOPIC, 1].rows) == (error_code == NONE)


async def test_a_run_that_a_full_index_refuses_fails_with_what_its_producer_sent_after_it() -> None:
    """If they were committed, the later batches would leave a hole in the producer's sequence. Other partitions
    continue."""

    class Full(Coordinator):
        full = frozenset({0})

        async def commit(self, segment, runs, *, not_after_ms=0):
            refused = [run for run in runs if run.partition in self.full]
            self.full = frozenset()
            taken = await super().commit(segment, [run for run in runs if run not in refused])
            return [
                RunAnswer(run.topic_id, run.partition, THROTTLING_QUOTA_EXCEEDED, (), 0, 0) for run in refused
            ] + taken

    coordinator = Full()
    wal = await make(coordinator=coordinator, max_bytes=3 * ONE_BATCH)
    producer = Producer(wal)
    for partition in (0, 1, 0):
        producer.append(partition)
    producer.append(0)
    producer.append(1)
    await wal.drain()
    assert producer.codes(0) == dict.fromkeys(range(3), KAFKA_STORAGE_ERROR)
    assert producer.codes(1) == {0: NONE, 1: NONE}
    producer.append(0)
    await wal.drain()
    assert producer.codes(0)[3] == NONE
    assert wal._stats.index_full_batches == 2
    assert wal._stats.commit_failures == 0, "other runs of these segments were committed"


async def test_nobody_knows_where_a_refusal_follows_a_commit_that_was_not_answered() -> None:
    """The first try may have taken effect: if the producer got an error that denies this, it might send the same
    again."""

    class FencedMeanwhile(Coordinator):
        async def commit(self, segment, runs, *, not_after_ms=0):
            await super().commit(segment, runs)  # the first plan: takes effect, no answer
            return [RunAnswer(run.topic_id, run.partition, KAFKA_STORAGE_ERROR, (), -1, -1) for run in runs]

    coordinator = FencedMeanwhile([(0, True, False)])
    wal = await make(coordinator=coordinator, commit_timeout_s=60.0)
    producer = Producer(wal)
    producer.append()
    await wal.drain()
    assert producer.codes() == {0: REQUEST_TIMED_OUT}
    producer.append()
    await wal.drain()
    assert producer.codes()[1] == KAFKA_STORAGE_ERROR
    assert wal._stats.refused_unseen_batches == 2


async def test_senseless_answers_still_settle_every_batch() -> None:
    class Short(Coordinator):
        async def commit(self, segment, runs, *, not_after_ms=0):
            answers = await super().commit(segment, runs)
            return [one if not one.partition else one._replace(batches=one.batches[1:]) for one in answers]

    wal = await make(coordinator=Short())
    producer = Producer(wal)
    for partition in (0, 1, 1, 2):
        producer.append(partition)
    await wal.drain()
    assert producer.codes(0) == {0: NONE}
    assert producer.codes(1) == {0: REQUEST_TIMED_OUT, 1: REQUEST_TIMED_OUT}
    assert producer.codes(2) == {0: REQUEST_TIMED_OUT}


async def test_only_failed_runs_are_retried_and_the_others_are_settled_at_once() -> None:
    """The failed run was committed, but the second try is rejected without a check, so its outcome is unknown."""
    asked: list[list[int]] = []

    class OneFails(Coordinator):
        async def commit(self, segment, runs, *, not_after_ms=0):
            asked.append([run.partition for run in runs])
            answers = await super().commit(segment, runs)
            failed = {(1, 1): REQUEST_TIMED_OUT, (2, 1): KAFKA_STORAGE_ERROR, (1, 2): KAFKA_STORAGE_ERROR}
            if len(asked) == 2:
                settled.update({partition: producer.codes(partition) for partition in range(3)})
            return [
                one._replace(error_code=failed[len(asked), one.partition], batches=())
                if (len(asked), one.partition) in failed
                else one
                for one in answers
            ]

    settled: dict[int, dict[int, int]] = {}
    wal = await make(coordinator=OneFails(), commit_timeout_s=60.0)
    producer = Producer(wal)
    for partition in range(3):
        producer.append(partition)
    await wal.drain()
    assert asked == [[0, 1, 2], [1]]
    assert settled == {0: {0: NONE}, 1: {}, 2: {0: KAFKA_STORAGE_ERROR}}
    assert producer.codes(1) == {0: REQUEST_TIMED_OUT}
    assert wal.segments_underway == 0


async def test_a_shard_that_fails_delays_no_later_segment_of_other_partitions() -> None:
    class OneFails(Coordinator):
        fails = True

        async def commit(self, segment, runs, *, not_after_ms=0):
            failing = [run for run in runs if run.partition == 0 and self.fails]
            answers = await super().commit(segment, [run for run in runs if run not in failing])
            return answers + [RunAnswer(run.topic_id, run.partition, REQUEST_TIMED_OUT, (), -1, -1) for run in failing]

    coordinator = OneFails()
    wal = await make(coordinator=coordinator, commit_timeout_s=60.0)
    producer = Producer(wal)
    for partition in (0, 1):
        producer.append(partition)
    wal.flush()
    producer.append(1)
    wal.flush()
    producer.append(0)
    wal.flush()
    async with asyncio.timeout(20):
        while len(producer.codes(1)) < 2:
            producer.notified.clear()
            await producer.notified.wait()
    assert producer.codes(0) == {}
    coordinator.fails = False
    await wal.drain()
    assert [outcome.base_offset for partition, _, outcome in producer.outcomes if partition == 0] == [0, 1]
