"""The server starts the background work of every room and closes every room; nothing is listed a second time."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.assembly.parts import Parts
from proxy.assembly.room import RoomParts, Work
from proxy.config import Settings
from proxy.server.server import Server
from tests.unit.assembly.built import parts_of


def rooms_of(parts: Parts) -> list[RoomParts]:
    return [getattr(parts, name) for name in Parts.__slots__]


class Nothing:
    async def close(self) -> None:
        pass


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count, by room and method, what the server calls; nothing is really started or closed."""
    counted: Counter[str] = Counter()

    def watched(kind: type[RoomParts]) -> None:
        async def work() -> None:
            counted[f"{kind.__name__} works"] += 1
            await asyncio.Event().wait()

        def background(self: RoomParts) -> Iterator[Work]:
            yield work()

        async def close(self: RoomParts) -> None:
            assert not work_is_running(), "background work ends before anything is closed"
            counted[f"{kind.__name__} closes"] += 1

        def take_settings(self: RoomParts, changed: Any) -> None:
            counted[f"{kind.__name__} takes {sorted(changed)}"] += 1

        monkeypatch.setattr(kind, "background_on_store", lambda room: ())
        for method in (background, close, take_settings):
            monkeypatch.setattr(kind, method.__name__, method)

        def work_is_running() -> bool:
            return any(task.get_coro().__qualname__ == work.__qualname__ for task in asyncio.all_tasks())  # type: ignore[union-attr]

    for kind in RoomParts.__subclasses__():
        watched(kind)
    return counted


@pytest.fixture
def server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server whose start gets all the answers that it waits for."""
    server = Server(settings)

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(server.start, "_healing", nothing)
    monkeypatch.setattr("proxy.topics.topic_defaults.TopicDefaults.refresh", nothing)
    monkeypatch.setattr("proxy.replicas.selector.ReplicaSelector.refresh", nothing)
    return server


async def test_every_room_works_and_is_closed_once(server: Server, settings: Settings, calls: Counter[str]) -> None:
    parts = server._parts = parts_of(settings)
    kinds = [type(room).__name__ for room in rooms_of(parts)]
    assert len(kinds) == len(set(kinds)) >= 12
    await server.start.run(parts)
    await asyncio.sleep(0)
    assert calls == Counter(f"{kind} works" for kind in kinds)
    calls.clear()
    server._take_settings({"rack"})
    assert calls == Counter(f"{kind} takes ['rack']" for kind in kinds)
    calls.clear()
    await server._close(parts, Nothing())  # type: ignore[arg-type]
    assert calls == Counter(f"{kind} closes" for kind in kinds)
    assert list(calls) == [f"{kind} closes" for kind in reversed(kinds)], "what others use is closed after them"


async def test_every_endless_method_of_a_part_is_background_work(settings: Settings) -> None:
    """A part has its own background work, and its room forgets to start it."""
    parts = parts_of(settings)
    started = set()
    for work in (*parts.background(), *parts.background_on_store()):
        started.add(work.__qualname__)
        work.close()
    endless = {
        method.__qualname__
        for room in parts.rooms
        for name in type(room).__slots__
        for _, method in inspect.getmembers(type(getattr(room, name)), inspect.iscoroutinefunction)
        if method.__name__.split("_")[0] in ("keep", "follow", "tend", "sweep")
    }
    assert {"Topics.follow", "Housekeeper.keep_house", "RollupWriter.keep_writing"} <= endless
    single_steps = {"ViewWatch.keep_known", "RollupExpiry.sweep", "Snapshotter.sweep"}
    assert endless - started == single_steps
