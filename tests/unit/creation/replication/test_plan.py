"""The plan for topics and partitions that the brokers reject, and the rejections that stand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.create_topics.v7.request import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig

from proxy.creation.replication import plan as module
from proxy.creation.replication.plan import MAX_PARTITIONS, Plan, plan_partitions

TWO = {1: "a", 2: "b"}
DEFAULTS = {"default.replication.factor": "3", "min.insync.replicas": "2", "num.partitions": "4"}


def topic(
    replicas: int = 3, partitions: int = 2, *, assignment: list[list[int]] | None = None, **configs: str | None
) -> Any:
    """A CreatableTopic; dots of configs are written as `_`."""
    assignments: Any = tuple(
        CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(nodes))  # type: ignore[arg-type]
        for index, nodes in enumerate(assignment or [])
    )
    made: Any = CreatableTopic
    return made(
        name="a",
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replicas,
        assignments=assignments,
        configs=tuple(
            CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
        ),
    )


def plan_topic(asked: Any, racks: dict[int, str | None], defaults: dict[str, str | None]) -> Plan | None:
    """Plan a topic where brokers may have the IDs 1 to 5."""
    return module.plan_topic(asked, racks, defaults, listened=range(1, 6))


def test_a_topic_is_made_with_all_that_live() -> None:
    plan = plan_topic(topic(partitions=4), TWO, DEFAULTS)
    assert plan is not None
    assert {frozenset(replicas) for replicas in plan.replicas} == {frozenset(TWO)}
    assert Counter(replicas[0] for replicas in plan.replicas) == {1: 2, 2: 2}
    assert (plan.made_replicas, plan.wanted_replicas, plan.assignment, plan.kept) == (2, 3, (), {})


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        (topic(), True),
        (topic(min_insync_replicas="3"), False),
        (topic(min_insync_replicas="9"), False),
        (topic(min_insync_replicas="1"), True),
        (topic(min_insync_replicas=None), True),
        (topic(min_insync_replicas="some"), False),
        (topic(min_insync_replicas="0"), False),
        (topic(5), True),
        (topic(6), False),
        (topic(32_767), False),
        (topic(2), False),
        (topic(1), False),
        (topic(0), False),
        (topic(-2), False),
        (topic(partitions=0), False),
        (topic(partitions=-2), False),
        (topic(partitions=MAX_PARTITIONS + 1), False),
    ],
)
def test_other_rejections_of_the_brokers_stand(asked: Any, made: bool) -> None:
    assert (plan_topic(asked, TWO, DEFAULTS) is not None) is made


def test_a_broker_that_lives_counts_though_it_has_no_listener() -> None:
    assert plan_topic(topic(6), TWO | {6: "c"}, DEFAULTS) is not None
    assert plan_topic(topic(7), TWO | {6: "c"}, DEFAULTS) is None
    assert plan_topic(topic(assignment=[[6, 1, 3]]), TWO | {6: "c"}, DEFAULTS) is not None
    assert grown([(1, 2), (2, 1)], 3, [(6, 1, 2)], registered={1, 2, 6}) is not None


def test_the_minimum_is_that_of_min_insync_replicas_and_replicas() -> None:
    """KIP-409: a topic may have fewer replicas than its `min.insync.replicas`."""
    assert plan_topic(topic(3), {1: "a"}, DEFAULTS) is None
    assert plan_topic(topic(3), {1: "a"}, DEFAULTS | {"min.insync.replicas": "1"}) is not None
    assert plan_topic(topic(3), {}, DEFAULTS | {"min.insync.replicas": "1"}) is None
    assert plan_topic(topic(3, min_insync_replicas="5"), TWO, DEFAULTS) is None


def test_replicas_that_are_left_to_the_brokers_are_the_default_or_unknown() -> None:
    plan = plan_topic(topic(-1, -1), TWO, DEFAULTS)
    assert plan is not None
    assert (len(plan.replicas), plan.wanted_replicas) == (4, 3)
    for name in DEFAULTS:
        assert plan_topic(topic(-1, -1), TWO, DEFAULTS | {name: None}) is None
    assert plan_topic(topic(-1, 1), TWO, DEFAULTS | {"default.replication.factor": "2"}) is None


def test_an_exact_assignment_is_made_with_its_live_replicas_as_many_for_all() -> None:
    asked = topic(assignment=[[3, 1, 2], [2, 3, 1], [1, 2, 4]])
    plan = plan_topic(asked, TWO | {4: "c"}, DEFAULTS)
    assert plan == Plan(((1, 2), (2, 1), (1, 2)), 3, ((3, 1, 2), (2, 3, 1), (1, 2, 4)))


@pytest.mark.parametrize(
    ("assignment", "least", "made"),
    [
        ([[1, 3]], "1", True),
        ([[1, 5]], "1", True),
        ([[1, 6]], "1", False),
        ([[1, 3], [1, 6]], "1", False),
        ([[1, 3]], "2", False),
        ([[1, 2]], "1", False),
        ([[3]], "1", False),
        ([[1, 2, 3], [1, 3, 4]], "2", False),
        ([[1, 2, 3], [1, 3, 4]], "1", True),
        ([[1, 2, 3], [1, 3]], "1", False),
        ([[1, 3, 3]], "1", False),
        ([[1, 2, 3], []], "1", False),
        ([[]], "1", False),
    ],
)
def test_an_exact_assignment_that_is_too_small_or_wrong_stays_rejected(
    assignment: list[list[int]], least: str, made: bool
) -> None:
    plan = plan_topic(topic(assignment=assignment, min_insync_replicas=least), TWO, DEFAULTS)
    assert (plan is not None) is made


@pytest.mark.parametrize(("indices", "made"), [((0, 1), True), ((1, 0), True), ((0, 5), False), ((0, 0), False)])
def test_an_exact_assignment_names_each_partition_once(indices: tuple[int, ...], made: bool) -> None:
    """The brokers reject others, and must not be asked about renumbered ones."""
    assignments: Any = tuple(
        CreatableReplicaAssignment(partition_index=index, broker_ids=(1, 2, 3))  # type: ignore[arg-type]
        for index in indices
    )
    asked = replace(topic(assignment=[[1, 2, 3]]), assignments=assignments)
    assert (plan_topic(asked, TWO, DEFAULTS) is not None) is made
    assert plan_topic(topic(assignment=[[1, 2, -1]]), TWO, DEFAULTS) is None


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=4).map(list), min_size=1, max_size=4),
    st.sets(st.integers(0, 5)),
    st.integers(-1, 5),
)
def test_whatever_is_made_is_live_enough_and_part_of_what_was_asked_for(
    assignment: list[list[int]], live: set[int], least: int
) -> None:
    plan = plan_topic(topic(assignment=assignment), dict.fromkeys(live), {"min.insync.replicas": str(least)})
    if plan is None:
        return
    assert plan.assignment == tuple(map(tuple, assignment))
    for asked, made in zip(assignment, plan.replicas, strict=True):
        assert set(made) <= live & set(asked)
        assert len(set(made)) == len(made) == plan.made_replicas
        assert max(1, min(least, len(asked))) <= len(made) < len(asked)


def grown(
    existing: list[tuple[int, ...]], count: int, asked: list[tuple[int, ...]] | None = None, **changed: Any
) -> Any:
    """Plan new partitions of a topic that should have three replicas, on two brokers."""
    world: dict[str, Any] = {
        "wanted": 3,
        "racks": TWO,
        "registered": set(TWO),
        "listened": range(1, 6),
        "least": 2,
        **changed,
    }
    return plan_partitions("a", existing, count, asked, **world)


def test_partitions_that_lack_replicas_are_added_where_others_lack_them_too() -> None:
    assert grown([(1, 2), (2, 1)], 3, [(3, 1, 2)]) == Plan(((1, 2),), 3, ((3, 1, 2),))


def test_replicas_of_brokers_that_are_registered_no_more_are_let_go_of() -> None:
    plan = grown([(3, 1, 2), (1, 2, 3)], 4)
    assert plan.kept == {0: (1, 2), 1: (1, 2)}
    assert {frozenset(replicas) for replicas in plan.replicas} == {frozenset(TWO)}
    assert Counter(replicas[0] for replicas in plan.replicas) == {2: 2}, "the leaders of old and new ones are spread"
    exact = grown([(3, 1, 2), (1, 2, 3)], 3, [(3, 2, 1)])
    assert exact == Plan(((2, 1),), 3, ((3, 2, 1),), {0: (1, 2), 1: (1, 2)})


@pytest.mark.parametrize(
    ("existing", "count", "changed"),
    [
        ([(1, 2), (2, 1)], 3, {}),  # the brokers accept this by themselves
        ([(3, 1, 2)], 2, {"registered": {1, 2, 3}}),  # it does not live, but may
        ([(3, 1, 2)], 2, {"least": 3}),
        ([(3, 1, 2)], 2, {"least": 0}),
        ([(3, 1, 2)], 2, {"racks": {1: "a"}}),
        ([(3, 4, 1), (1, 2, 3)], 3, {"least": 1}),  # they would be left with different numbers
        ([(3, 1, 2)], 1, {}),
        ([(3, 1, 2)], 0, {}),
        ([(3, 1, 2)], MAX_PARTITIONS + 2, {}),
        ([], 3, {}),
        ([()], 3, {}),
    ],
)
def test_the_refusal_of_more_partitions_stands(existing: list[tuple[int, ...]], count: int, changed: Any) -> None:
    assert grown(existing, count, **changed) is None


@pytest.mark.parametrize(
    "asked", [[(3, 1)], [(3, 1, 2), (3, 1, 2)], [(3, 4, 1)], [(3, 3, 1)], [(3, 4, 5)], [(6, 1, 2)], [()]]
)
def test_the_refusal_of_exact_partitions_stands(asked: list[tuple[int, ...]]) -> None:
    assert grown([(1, 2), (2, 1)], 3, asked) is None
