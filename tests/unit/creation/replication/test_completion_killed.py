"""A proxy that completes a topic may be killed after each of its writes: the next one reaches the same result."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from proxy.creation.replication import completion as module
from proxy.creation.replication.interface import Pending
from tests.support.fuse import Fuse, Killed
from tests.unit.creation.replication.model_brokers import TWO, House, MemoryPending, come


class FusedStore(MemoryPending):
    """The victim's store."""

    def __init__(self, store: MemoryPending, fuse: Fuse) -> None:
        self.wishes = store.wishes
        self._fuse = fuse

    async def change(self, was: Pending, to: Pending) -> bool:
        changed: bool = await self._fuse.write(lambda: super(FusedStore, self).change(was, to))
        return changed

    async def forget(self, wishes: Sequence[Pending]) -> None:
        await self._fuse.write(lambda: super(FusedStore, self).forget(wishes))


async def _complete(monkeypatch: pytest.MonkeyPatch, writes: int | None) -> tuple[int, list[list[list[int]]]]:
    """Complete a topic with a proxy that dies after `writes` writes, and another one; return the writes and the
    replicas."""
    house = House(monkeypatch, TWO)
    house.brokers.make("intent", [1, 2], [2, 1])
    house.wish("intent", 4, owner="dead", made_as=[[1, 2], [2, 1]])
    house.wish("known", 3, topic_id=house.brokers.make("known", [2, 1]))
    house.wish("gone", 3, topic_id=b"gone".ljust(16))
    house.wish("never", 3, owner="dead")
    come(house)
    fuse = Fuse(writes)
    reassign = house.brokers.reassign
    monkeypatch.setattr(module, "reassign", lambda *arguments: fuse.write(lambda: reassign(*arguments)))
    victim = house.another(FusedStore(house.store, fuse), partitions_at_once=1)
    try:
        for number in range(12):
            if number == 6:
                come(house, (4, "a"))
            await victim.complete()
            house.brokers.sync()
    except Killed:
        assert fuse.writes == writes
    monkeypatch.setattr(module, "reassign", reassign)
    come(house, (4, "a"))
    house.completion = house.another(partitions_at_once=1)
    await house.rounds(12, house.brokers.sync)
    assert house.wished == []
    return fuse.writes, [[sorted(nodes) for nodes in house.brokers.replicas(name)] for name in ("intent", "known")]


async def test_the_next_one_completes_the_same_wherever_the_first_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    writes, unharmed = await _complete(monkeypatch, None)
    assert writes > 8
    assert unharmed == [[[1, 2, 3, 4]] * 2, [[1, 2, 3]]]
    for last in range(1, writes + 1):
        _, replicas = await _complete(monkeypatch, last)
        assert replicas == unharmed
