from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.source.errors import DataLoss, SourceError
from pipeline.source.options import parse_options
from pipeline.source.reach import LogEnds
from pipeline.source.selection import ChosenTopic
from pipeline.source.splits import LogRange
from pipeline.source.stream_offsets import StreamOffsets, TopicOffsets, admitted, from_json, to_json
from pipeline.source.streaming import Sight, Triggers, ranges_between

A, B = b"a" * 16, b"b" * 16
COUNTS = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 9)), st.integers(1, 1_000), min_size=1)


def sight(topic_id: bytes = A, *ends: tuple[int, int], name: str = "t") -> Sight:
    """A topic with log start and high watermark of each partition."""
    topic = ChosenTopic(name, topic_id, tuple(range(len(ends))))
    logs = {(name, number): LogEnds(start, end, end) for number, (start, end) in enumerate(ends)}
    return Sight([topic], logs)


def at(topic_id: bytes = A, *offsets: int, name: str = "t") -> StreamOffsets:
    return {name: TopicOffsets(topic_id, dict(enumerate(offsets)))}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def triggers(clock: Clock | None = None, **options: str) -> Triggers:
    return Triggers(parse_options({"config": "c", "subscribe": "t", **options}, kind="stream"), clock or Clock())


@given(COUNTS, st.integers(1, 3_000))
def test_a_trigger_takes_as_much_as_it_may(available: dict[tuple[str, int], int], most: int) -> None:
    taken = admitted(available, most)
    assert sum(taken.values()) == min(most, sum(available.values()))
    assert all(0 <= taken[where] <= count for where, count in available.items())


@given(COUNTS, st.integers(1, 50))
def test_triggers_come_to_an_end(available: dict[tuple[str, int], int], most: int) -> None:
    left, rounds = dict(available), 0
    while any(left.values()):
        for where, count in admitted({where: count for where, count in left.items() if count}, most).items():
            left[where] -= count
        rounds += 1
    assert rounds == -(-sum(available.values()) // most)


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.tuples(st.binary(min_size=16, max_size=16), st.dictionaries(st.integers(0, 99), st.integers(0, 2**62))),
    )
)
def test_offsets_are_kept_in_one_form(offsets: dict[str, tuple[bytes, dict[int, int]]]) -> None:
    made = {name: TopicOffsets(*of) for name, of in offsets.items()}
    text = json.dumps(to_json(made))
    assert from_json(json.loads(text)) == made
    backwards = {
        name: TopicOffsets(made[name].topic_id, dict(reversed(made[name].offsets.items()))) for name in reversed(made)
    }
    assert json.dumps(to_json(backwards)) == text


@pytest.mark.parametrize("text", ["{}", '{"version": 2, "topics": {}}', '{"version": 1}', '{"t": {"0": 5}}'])
def test_another_checkpoint_is_rejected(text: str) -> None:
    with pytest.raises(SourceError, match="use a new checkpointLocation"):
        from_json(json.loads(text))


def test_available_now_reads_all_records_and_then_nothing() -> None:
    now = sight(A, (0, 7), (3, 9))
    end = triggers().end(at(A, 5, 3), now, most=None, wait=True)
    assert end == at(A, 7, 9)
    assert json.dumps(to_json(triggers().end(end, now, most=None, wait=True))) == json.dumps(to_json(end))


def test_new_partitions_and_topics_are_read_from_their_beginning() -> None:
    other = sight(B, (0, 4), name="u")
    now = Sight([*sight(A, (0, 7), (0, 9)).topics, *other.topics], {**sight(A, (0, 7), (0, 9)).ends, **other.ends})
    end = triggers().end(at(A, 5), now, most=None, wait=True)
    assert end == {**at(A, 7, 9), **at(B, 4, name="u")}
    assert ranges_between(at(A, 5), end) == [
        LogRange("t", A, 0, 5, 7),
        LogRange("t", A, 1, 0, 9),
        LogRange("u", B, 0, 0, 4),
    ]


def test_limits_are_shared_among_the_partitions() -> None:
    now = sight(A, (0, 100), (0, 300), (0, 0))
    assert triggers().end(at(A, 0, 0, 0), now, most=40, wait=True) == at(A, 10, 30, 0)


def test_too_little_waits_until_the_delay_is_over() -> None:
    clock, now, start = Clock(), sight(A, (0, 9)), at(A, 0)
    trigger = triggers(clock, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert trigger.end(start, now, most=None, wait=True) == start
    assert trigger.end(start, sight(A, (0, 10)), most=None, wait=True) == at(A, 10)
    clock.now_s = 59.9
    assert trigger.end(start, now, most=None, wait=True) == start
    assert trigger.end(start, now, most=None, wait=False) == at(A, 9)
    clock.now_s = 120.0
    assert trigger.end(start, now, most=None, wait=True) == at(A, 9)


@pytest.mark.parametrize(
    ("now", "text", "end"),
    [
        (sight(B, (0, 4)), "t was deleted and recreated", at(B, 4)),
        (Sight([], {}), "t was deleted, or is chosen no longer", {}),
        (sight(A, (0, 3)), "t-0 ends at offset 3, and was read up to 5", at(A, 3)),
    ],
)
def test_losses(now: Sight, text: str, end: StreamOffsets) -> None:
    with pytest.raises(DataLoss, match=text):
        triggers().end(at(A, 5), now, most=None, wait=True)
    found = triggers(failOnDataLoss="false").end(at(A, 5), now, most=7, wait=True)
    assert found == end
    assert [one.end for one in ranges_between(at(A, 5), found)] == ([4] if now.topics and end == at(B, 4) else [])


def test_records_that_were_deleted_before_a_new_partition_was_read_are_a_loss() -> None:
    now = sight(A, (0, 5), (50, 120))
    with pytest.raises(DataLoss, match="t-1 is new and begins at offset 50; those before it were deleted before they"):
        triggers().end(at(A, 5), now, most=None, wait=True)
    end = triggers(failOnDataLoss="false").end(at(A, 5), now, most=10, wait=True)
    assert end == at(A, 5, 60)
    # The reader of these rows reports the deletion.
    assert ranges_between(at(A, 5), end) == [LogRange("t", A, 1, 0, 60)]


def test_a_partition_that_is_chosen_no_longer_is_a_loss_and_its_place_is_kept() -> None:
    narrow = Sight([ChosenTopic("t", A, (0,))], {("t", 0): LogEnds(0, 110, 110)})
    with pytest.raises(DataLoss, match="t-1 was deleted, or is chosen no longer; it was read up to 100"):
        triggers().end(at(A, 100, 100), narrow, most=None, wait=True)
    end = triggers(failOnDataLoss="false").end(at(A, 100, 100), narrow, most=None, wait=True)
    assert end == at(A, 110, 100)
    wide = triggers().end(end, sight(A, (0, 110), (0, 120)), most=None, wait=True)
    assert ranges_between(end, wide) == [LogRange("t", A, 1, 100, 120)]


def test_a_partition_that_is_missing_for_a_moment_continues_where_it_was() -> None:
    there = sight(A, (0, 110), (0, 120))
    gone = Sight(there.topics, {("t", 0): there.ends["t", 0]})
    with pytest.raises(DataLoss, match="t-1 was deleted"):
        triggers().end(at(A, 100, 100), gone, most=None, wait=True)
    assert triggers(failOnDataLoss="false").end(at(A, 100, 100), gone, most=None, wait=True) == at(A, 110, 100)


def test_a_lasting_loss_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    trigger, narrow = triggers(failOnDataLoss="false"), sight(A, (0, 110))
    for _ in range(3):
        assert trigger.end(at(A, 110, 100), narrow, most=None, wait=True) == at(A, 110, 100)
    assert capsys.readouterr().out.count("t-1 was deleted, or is chosen no longer") == 1


def test_a_stream_that_reads_committed_records_only_waits_for_open_transactions() -> None:
    """Its checkpoint may be of a time when it read uncommitted records, too: then it is ahead, and nothing is lost."""
    now = Sight([ChosenTopic("t", A, (0, 1))], {("t", 0): LogEnds(0, 110, 90), ("t", 1): LogEnds(0, 120, 105)})
    assert triggers().end(at(A, 100, 100), now, most=None, wait=True) == at(A, 100, 105)
    assert triggers().end(at(A, 100, 100), now, most=3, wait=True) == at(A, 100, 103)
    with pytest.raises(DataLoss, match="t-0 ends at offset 110, and was read up to 111"):
        triggers().end(at(A, 111, 100), now, most=None, wait=True)
