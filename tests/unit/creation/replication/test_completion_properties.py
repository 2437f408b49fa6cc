"""Whatever brokers, operators and proxies do: the proxy removes no replica, and at the end none is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.creation.replication.completion import LEAST_LOOKS
from tests.unit.creation.replication.model_brokers import House

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b"}
WANTED, MADE = 4, 2
PARTITIONS = 3

NODES = st.lists(st.sampled_from(sorted(RACKS)), min_size=1, max_size=5, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("look"), st.integers(0, 1)),
        st.tuples(st.just("sync"), st.none()),
        st.tuples(st.just("come"), st.sampled_from(sorted(RACKS))),
        st.tuples(st.just("go"), st.sampled_from(sorted(RACKS))),
        st.tuples(st.just("move"), st.tuples(st.integers(0, PARTITIONS - 1), NODES)),
        st.tuples(st.just("lease"), st.integers(0, 1)),
    ),
    max_size=25,
)


class Watched:
    """A house whose reassignments are checked when they are requested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
        self.house = House(monkeypatch, {node: RACKS[node] for node in (1, 2)}, partitions_at_once=at_once)
        self.brokers = self.house.brokers
        self.proxies = [self.house.completion, self.house.another(partitions_at_once=at_once)]
        topic_id = self.brokers.make("t", *[[1, 2]] * PARTITIONS)
        self.house.wish("t", WANTED, made=MADE, topic_id=topic_id)
        self._reassign = self.brokers.reassign
        from proxy.creation.replication import completion as module

        monkeypatch.setattr(module, "reassign", self.reassign)

    async def reassign(self, connection: Any, targets: dict[tuple[str, int], Sequence[int]]) -> Any:
        for (name, number), replicas in targets.items():
            partition = self.brokers.partition(name, number)
            assert partition.before is None, "it is being moved by somebody else"
            assert set(partition.replicas) < set(replicas)
            assert len(set(replicas)) == len(replicas) <= WANTED
            assert set(replicas) - set(partition.replicas) <= self.brokers.racks.keys()
        return await self._reassign(connection, targets)

    async def step(self, what: str, value: Any) -> None:
        match what:
            case "look":
                await self.proxies[value].complete()
            case "sync":
                self.brokers.sync()
            case "come":
                self.brokers.racks[value] = RACKS[value]
            case "go" if len(self.brokers.racks) > 1:
                self.brokers.racks.pop(value, None)
            case "move":
                number, nodes = value
                self.brokers.move("t", number, nodes)
            case "lease":
                self.proxies[value].lease_lost()


@given(steps=STEPS, at_once=st.integers(1, 4))
def test_whatever_happens_in_between(steps: list[tuple[str, Any]], at_once: int) -> None:
    async def run() -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            watched = Watched(monkeypatch, at_once)
            for what, value in steps:
                await watched.step(what, value)
            watched.brokers.racks |= RACKS
            for _ in range(4 * PARTITIONS + LEAST_LOOKS):
                watched.brokers.sync()
                await watched.proxies[0].complete()
            assert watched.house.wished == []
            smaller = [value for what, value in steps if what == "move" and len(value[1]) < WANTED]
            for number, replicas in enumerate(watched.brokers.replicas("t")):
                assert len(replicas) >= WANTED or any(one == number for one, _ in smaller)

    asyncio.run(run())
