"""Topics get the replicas of their wishes from any proxy, and no other decision is reverted."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
import structlog

from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface_registry import NO_TOPIC_ID
from proxy.creation.replication import completion as module
from proxy.creation.replication.completion import LEAST_LOOKS, UnderReplicated
from proxy.creation.replication.interface import Pending
from proxy.creation.replication.reassignments import TOPICS_PER_REQUEST, ReassignmentsRefused
from tests.unit.creation.replication.model_brokers import NOW_MS, SETTLE_S, THREE, TWO, House, come


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    """Create three racks with a broker in each; the third rack exists only when its broker has started."""
    return House(monkeypatch, TWO)


async def test_without_a_wish_no_request_is_sent(house: House) -> None:
    house.brokers.reachable = False
    await house.rounds()
    assert house.completion.left == UnderReplicated()


async def test_a_topic_waits_for_a_broker_and_is_complete_when_it_has_come(house: House) -> None:
    topic_id = house.brokers.make("t", [1, 2], [2, 1], [1, 2])
    house.wish("t", 3, topic_id=topic_id)
    await house.rounds(3)
    assert house.brokers.asked == []
    assert house.completion.left == UnderReplicated(1, 3, 1_000)
    come(house)
    await house.rounds()
    assert [sorted(replicas) for replicas in house.brokers.replicas("t")] == [[1, 2, 3]] * 3
    assert house.completion.left == UnderReplicated(1, 3, 1_000)
    await house.rounds(3)  # not in sync yet: no new request
    assert len(house.brokers.asked) == 1
    house.brokers.sync()
    await house.rounds()
    assert house.wished == []
    assert sorted(replicas[0] for replicas in house.brokers.replicas("t")) == [1, 2, 3]
    await house.rounds()
    assert house.completion.left == UnderReplicated()


async def test_as_many_replicas_as_possible_are_added_early(house: House) -> None:
    topic_id = house.brokers.make("t", [1, 2])
    house.wish("t", 4, topic_id=topic_id)
    come(house)
    await house.rounds(3, house.brokers.sync)
    assert sorted(house.brokers.replicas("t")[0]) == [1, 2, 3]
    assert house.wished == ["t"]
    come(house, (4, "a"))
    await house.rounds(2, house.brokers.sync)
    assert sorted(house.brokers.replicas("t")[0]) == [1, 2, 3, 4]
    assert house.wished == []


async def test_replicas_go_to_another_rack_before_another_broker(house: House) -> None:
    topic_id = house.brokers.make("t", *[[1, 2]] * 4)
    house.wish("t", 3, topic_id=topic_id)
    come(house, (3, "c"), (4, "a"), (5, "b"), (6, "c"))
    await house.rounds(2, house.brokers.sync)
    replicas = house.brokers.replicas("t")
    assert all({house.brokers.racks[node] for node in nodes} == {"a", "b", "c"} for nodes in replicas)
    assert Counter(nodes[0] for nodes in replicas).most_common(1)[0][1] == 1
    added = Counter(next(node for node in nodes if node not in (1, 2)) for nodes in replicas)
    assert added == {3: 2, 6: 2}


async def test_the_rack_of_a_broker_that_is_down_has_a_replica(house: House) -> None:
    for number in range(20):
        name = f"t{number}"
        house.wish(name, 3, topic_id=house.brokers.make(name, [1, 2]))
    await house.rounds()
    del house.brokers.racks[1]
    come(house, (3, "c"), (4, "a"))
    await house.rounds()
    assert all(sorted(house.brokers.replicas(f"t{number}")[0]) == [1, 2, 3] for number in range(20))


async def test_a_topic_that_waits_for_a_dead_broker_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(monkeypatch, THREE, partitions_at_once=2)
    for name in ("s", "t"):
        house.wish(name, 3, topic_id=house.brokers.make(name, [1, 2], [1, 2]))
    await house.rounds()
    del house.brokers.racks[3]
    come(house, (4, "c"))
    await house.rounds(4, house.brokers.sync)
    assert [sorted(nodes) for name in "st" for nodes in house.brokers.replicas(name)].count([1, 2, 4]) == 2


async def test_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(monkeypatch, THREE, partitions_at_once=2)
    for name in ("s", "t"):
        house.wish(name, 3, topic_id=house.brokers.make(name, *[[1, 2]] * 3))
    await house.rounds(3)
    assert [len(asked) for asked in house.brokers.asked] == [2]
    house.brokers.partition(*next(iter(house.brokers.asked[0]))).isr.append(3)
    house.brokers.sync()
    await house.rounds(4, house.brokers.sync)
    assert [len(asked) for asked in house.brokers.asked] == [2, 2, 2]
    assert house.wished == []


async def test_an_exact_assignment_is_made_as_it_was_asked_for(house: House) -> None:
    topic_id = house.brokers.make("t", [1], [2], [1, 2])
    house.wish("t", [[3, 1], [2, 4], [2, 1]], made=1, topic_id=topic_id)
    come(house)
    await house.rounds(2, house.brokers.sync)
    assert house.brokers.replicas("t") == [[3, 1], [2], [1, 2]]
    assert house.wished == ["t"]
    come(house, (4, "a"))
    await house.rounds(2, house.brokers.sync)
    assert house.brokers.replicas("t") == [[3, 1], [2, 4], [1, 2]]
    assert house.wished == []


async def test_an_exact_assignment_takes_precedence_over_a_factor(house: House) -> None:
    topic_id = house.brokers.make("t", [1, 2], [1, 2])
    house.wish("t", 3, topic_id=topic_id)
    house.wish("t", [[2, 4]], topic_id=topic_id, first_partition=1, made=1)
    house.brokers.partition("t", 1).replicas = house.brokers.partition("t", 1).isr = [2]
    come(house, (3, "c"), (4, "a"))
    await house.rounds(3, house.brokers.sync)
    assert sorted(house.brokers.replicas("t")[0])[:2] == [1, 2]
    assert len(house.brokers.replicas("t")[0]) == 3
    assert house.brokers.replicas("t")[1] == [2, 4]
    assert house.wished == []


async def test_partitions_that_are_added_meanwhile_get_theirs(house: House) -> None:
    topic_id = house.brokers.make("t", [1, 2])
    house.wish("t", 3, topic_id=topic_id)
    await house.rounds()
    house.brokers.make("t", [1, 2], [2, 1], topic_id=topic_id)
    come(house)
    await house.rounds(2, house.brokers.sync)
    assert [sorted(nodes) for nodes in house.brokers.replicas("t")] == [[1, 2, 3]] * 2
    assert house.wished == []


async def test_a_wish_whose_partitions_are_not_there_yet_is_kept_until_they_had_their_time(house: House) -> None:
    """CreatePartitions: existing partitions are complete before the brokers are asked for more."""
    come(house)
    topic_id = house.brokers.make("t", [1, 2, 3])
    house.wish("t", [[1, 2, 3]], topic_id=topic_id, first_partition=1, since_ms=NOW_MS)
    house.wish("t", 3, topic_id=topic_id, since_ms=NOW_MS)
    await house.rounds(2 * LEAST_LOOKS)
    assert len(house.wished) == 2
    house.now_ms += int(SETTLE_S * 1000)
    await house.rounds(LEAST_LOOKS)
    assert house.wished == []


async def test_a_reassignment_of_somebody_else_is_left_alone(house: House) -> None:
    topic_id = house.brokers.make("t", [1, 2], [1, 2])
    house.wish("t", 3, topic_id=topic_id)
    come(house, (3, "c"), (4, "a"))
    house.brokers.move("t", 0, [4, 2])
    await house.rounds(3)
    assert [list(asked) for asked in house.brokers.asked] == [[("t", 1)]]
    house.brokers.sync()
    assert house.brokers.replicas("t")[0] == [4, 2]
    await house.rounds(2, house.brokers.sync)
    assert sorted(house.brokers.replicas("t")[0]) == [2, 3, 4]
    assert house.wished == []


async def test_a_reassignment_that_begins_after_the_check_is_left_alone_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.wish("t", 3, topic_id=house.brokers.make("t", [1, 2], [1, 2]))
    come(house, (3, "c"), (4, "a"), (5, "b"))
    listed = house.brokers.list_reassignments

    async def list_and_move(connection: Any, partitions: Any) -> Any:
        found = await listed(connection, partitions)
        if not found:
            house.brokers.move("t", 0, [4, 5])
        return found

    monkeypatch.setattr(module, "list_reassignments", list_and_move)
    await house.rounds()
    house.brokers.sync()
    assert house.brokers.replicas("t")[0] == [4, 5]
    assert len(house.brokers.replicas("t")[1]) == 3


async def test_an_old_look_is_not_acted_upon(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.wish("t", 3, topic_id=house.brokers.make("t", [1, 2]))
    come(house)
    monkeypatch.setattr(module, "_STALE_S", -1.0)
    with pytest.raises(ReassignmentsRefused, match="took longer") as refused:
        await house.rounds()
    assert not refused.value.rights
    assert house.brokers.asked == []


async def test_others_go_on_while_partitions_are_placed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    targets = module.targets

    def noted(*arguments: Any, **more: Any) -> Any:
        threads.append(threading.current_thread())
        return targets(*arguments, **more)

    monkeypatch.setattr(module, "targets", noted)
    for name in ("t", "full"):
        house.wish(name, 3, topic_id=house.brokers.make(name, [1, 2]))
    await house.rounds(3)
    assert threads == [], "nobody has come who could be placed on"
    come(house)
    house.brokers.move("full", 0, [1, 2, 3])
    await house.rounds(3)
    assert len(threads) == 1, "nor is what is being moved"
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize("intent", [False, True])
async def test_a_wish_that_is_withdrawn_meanwhile_stays_withdrawn(
    house: House, monkeypatch: pytest.MonkeyPatch, intent: bool
) -> None:
    topic_id = house.brokers.make("t", *([[1, 2]] if intent else [[1, 2, 3]]))
    come(house)
    house.wish("t", 4, topic_id=NO_TOPIC_ID if intent else topic_id, owner="dead")
    everything = house.store.all

    async def all_then_accept() -> tuple[Pending, ...]:
        wishes = await everything()
        await house.store.forget(wishes)
        return wishes

    monkeypatch.setattr(house.store, "all", all_then_accept)
    await house.rounds()
    assert house.wished == []


@pytest.mark.parametrize("intent", [False, True])
async def test_a_topic_that_may_not_be_described_is_reported_once_and_kept(house: House, intent: bool) -> None:
    topic_id = house.brokers.make("t", [1, 2])
    house.wish("t", 3, topic_id=NO_TOPIC_ID if intent else topic_id, owner="dead")
    house.brokers.hidden = {"t"}
    come(house)
    with structlog.testing.capture_logs() as logged:
        await house.rounds(2 * LEAST_LOOKS)
    assert [entry["topics"] for entry in logged if entry["event"] == "under_replicated_topics_hidden"] == [["t"]]
    assert house.completion.left == UnderReplicated(1, 0, 1_000)
    assert house.brokers.connections == 0
    house.brokers.hidden = set()
    await house.rounds(3, house.brokers.sync)
    assert house.wished == []


async def test_every_broker_is_asked_on_one_connection_about_all_that_is_gone(house: House) -> None:
    for number in range(1, 3 * TOPICS_PER_REQUEST):
        house.wish(f"t{number}", 3, topic_id=number.to_bytes(16))
    await house.rounds(LEAST_LOOKS)
    assert house.brokers.connections == LEAST_LOOKS * len(TWO)
    assert house.wished == []


async def test_a_partition_with_enough_replicas_keeps_them(house: House) -> None:
    topic_id = house.brokers.make("t", [1, 2])
    house.wish("t", [[1, 2, 3]], topic_id=topic_id)
    come(house, (3, "c"), (4, "a"), (5, "b"))
    house.brokers.make("t", [4, 5, 1], topic_id=topic_id)
    await house.rounds()
    assert house.brokers.asked == []
    assert house.wished == []


async def test_a_partition_that_was_made_smaller_stays_so(house: House) -> None:
    topic_id = house.brokers.make("t", [1, 2], [1, 2])
    house.wish("t", 3, topic_id=topic_id)
    house.brokers.partition("t").replicas = house.brokers.partition("t").isr = [2]
    come(house)
    await house.rounds(LEAST_LOOKS, house.brokers.sync)
    assert house.brokers.replicas("t")[0] == [2]
    assert sorted(house.brokers.replicas("t")[1]) == [1, 2, 3]
    assert house.wished == ["t"]
    await house.rounds()
    assert house.wished == []


async def test_a_partition_that_was_made_smaller_again_stays_so(house: House) -> None:
    """It has come halfway, and somebody reverts it to its beginning."""
    topic_id = house.brokers.make("t", [1, 2])
    house.wish("t", 4, topic_id=topic_id)
    come(house)
    await house.rounds(2, house.brokers.sync)
    house.brokers.move("t", 0, [1, 2])
    come(house, (4, "a"))
    await house.rounds(LEAST_LOOKS + 1, house.brokers.sync)
    assert house.brokers.replicas("t") == [[1, 2]]
    assert house.wished == []


async def test_a_deleted_topic_is_forgotten_and_its_namesake_left_alone(house: House) -> None:
    topic_id = house.brokers.make("t", [1, 2])
    house.wish("t", 3, topic_id=topic_id)
    await house.rounds()
    house.brokers.make("t", [1, 2], topic_id=b"another".ljust(16))
    come(house)
    await house.rounds(LEAST_LOOKS - 1)
    assert house.wished == ["t"]
    await house.rounds()
    assert house.wished == []
    assert house.brokers.asked == []


async def test_completion_waits_for_a_topic_that_one_broker_does_not_know(house: House) -> None:
    topic_id = house.brokers.make("t", [1, 2])
    house.wish("t", 3, topic_id=topic_id)
    house.brokers.unaware = {"t"}
    come(house)
    await house.rounds(2 * LEAST_LOOKS)
    assert house.wished == ["t"]
    house.brokers.unaware = set()
    await house.rounds(2, house.brokers.sync)
    assert house.wished == []


async def test_a_broker_that_hangs_keeps_no_other_topic_up(house: House) -> None:
    """Only the question whether a topic is gone goes to every broker."""
    house.wish("gone", 3, topic_id=b"gone".ljust(16))
    house.wish("t", 3, topic_id=house.brokers.make("t", [1, 2]))
    come(house)
    house.brokers.hanging = {2}
    for _ in range(2 * LEAST_LOOKS):
        with pytest.raises(BrokerUnreachable):
            await house.rounds()
        house.brokers.sync()
    assert house.wished == ["gone"]
    house.brokers.hanging = set()
    await house.rounds(LEAST_LOOKS)
    assert house.wished == []


@pytest.mark.parametrize("made_anew", ["away", "seen again", "another proxy"])
async def test_a_topic_counts_as_gone_only_after_every_check(house: House, made_anew: str) -> None:
    topic_id = house.brokers.make("t", [1, 2])
    house.wish("t", 3, topic_id=topic_id)
    gone = house.brokers.topics.pop("t")
    await house.rounds(LEAST_LOOKS - 1)
    if made_anew == "away":
        house.brokers.reachable = False
        with pytest.raises(BrokerUnreachable):
            await house.rounds()
        house.brokers.reachable = True
    elif made_anew == "seen again":
        house.brokers.topics["t"] = gone
        await house.rounds()
        del house.brokers.topics["t"]
    else:
        house.completion.lease_lost()
    await house.rounds(LEAST_LOOKS - 1)
    assert house.wished == ["t"]


async def test_however_often_it_is_looked_the_time_has_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(monkeypatch, THREE, confirm_s=3600.0)
    house.wish("t", 3, topic_id=b"gone".ljust(16))
    await house.rounds(5 * LEAST_LOOKS)
    assert house.wished == ["t"]


async def test_an_intent_under_way_is_left_alone(house: House) -> None:
    house.brokers.make("t", [1, 2])
    house.wish("t", 3, since_ms=NOW_MS, owner="lives", made_as=[[1, 2]])
    house.wish("never", 3, since_ms=NOW_MS, owner="dead")
    house.owners = {"lives"}
    come(house)
    await house.rounds(2 * LEAST_LOOKS)
    assert house.wished == ["t", "never"]
    assert house.brokers.asked == []


@pytest.mark.parametrize("left", ["dead", "late"])
async def test_an_intent_that_came_true_is_seen_through(house: House, left: str) -> None:
    house.brokers.make("t", [1, 2], [2, 1])
    house.wish("t", 3, since_ms=NOW_MS, owner="owner", made_as=[[1, 2], [2, 1]])
    if left == "late":
        house.owners = {"owner"}
        house.now_ms += int(SETTLE_S * 1000)
    await house.rounds()
    assert not next(iter(house.store.wishes.values())).is_intent
    come(house)
    await house.rounds()
    house.brokers.sync()
    house.now_ms += int(SETTLE_S * 1000)
    await house.rounds()
    assert house.wished == []
    assert [sorted(nodes) for nodes in house.brokers.replicas("t")] == [[1, 2, 3]] * 2


async def test_an_intent_that_did_not_come_true_is_forgotten(house: House) -> None:
    house.wish("t", 3, owner="dead")
    house.brokers.make("other", [1, 2], [2, 1])
    house.wish("other", 3, owner="dead", made_as=[[1, 2]])
    house.brokers.make("exact", [1, 2], [2, 1])
    house.wish("exact", [[1, 2, 3], [1, 3, 2]], owner="dead", made_as=[[1, 2], [1, 2]])
    come(house)
    await house.rounds(LEAST_LOOKS)
    assert house.wished == []
    assert house.brokers.asked == []


async def test_missing_rights_are_reported_and_change_nothing(house: House) -> None:
    house.wish("t", 3, topic_id=house.brokers.make("t", [1, 2]))
    await house.rounds()  # nothing to do, so no error
    come(house)
    house.brokers.rights = False
    with pytest.raises(ReassignmentsRefused) as refused:
        await house.rounds()
    assert refused.value.rights
    assert house.completion.left.topics == 1
    house.brokers.rights = True
    await house.rounds(2, house.brokers.sync)
    assert house.wished == []


async def test_finished_wishes_are_removed_without_rights(house: House) -> None:
    come(house)
    house.wish("complete", 3, topic_id=house.brokers.make("complete", [1, 2, 3]))
    house.wish("t", 3, topic_id=house.brokers.make("t", [1, 2]))
    house.brokers.rights = False
    with pytest.raises(ReassignmentsRefused):
        await house.rounds()
    assert house.wished == ["t"]


async def test_a_rejected_partition_is_reported_once_and_retried(house: House) -> None:
    house.wish("t", 3, topic_id=house.brokers.make("t", [1, 2], [1, 2]))
    come(house)
    house.brokers.refuses = {("t", 0): (39, "no")}
    with structlog.testing.capture_logs() as logged:
        await house.rounds(3, house.brokers.sync)
    assert [entry["partition"] for entry in logged if entry["event"] == "replicas_refused"] == [0]
    house.brokers.refuses = {}
    await house.rounds(2, house.brokers.sync)
    assert house.wished == []


async def test_completion_is_reported_once_with_its_time(house: House) -> None:
    house.wish("t", 3, topic_id=house.brokers.make("t", [1, 2]))
    come(house)
    with structlog.testing.capture_logs() as logged:
        await house.rounds(4, house.brokers.sync)
    events = [entry for entry in logged if entry["event"] == "under_replicated_topic_completed"]
    assert [(entry["topic"], entry["seconds"]) for entry in events] == [("t", (NOW_MS - 1_000) / 1000)]


async def test_two_at_a_time_complete_it_as_well(house: House) -> None:
    """A proxy that was taken for dead comes back next to the one that has the lease now."""
    house.wish("t", 3, topic_id=house.brokers.make("t", *[[1, 2]] * 5))
    come(house)
    other = house.another()
    for _ in range(4):
        await house.completion.complete()
        await other.complete()
        house.brokers.sync()
    assert [sorted(nodes) for nodes in house.brokers.replicas("t")] == [[1, 2, 3]] * 5
    assert house.wished == []
