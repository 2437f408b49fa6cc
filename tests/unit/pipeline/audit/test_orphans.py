"""The report of objects that nothing names, besides those that wait for their deletion."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.audit import second_look
from proxy.coordinator.interface import SegmentUse

ORPHAN = b"o" * 16


def stores_with(*waiting: bytes) -> Any:
    """Return stores in which nothing is used and every object exists."""

    async def segment_use(segments: list[bytes]) -> list[SegmentUse]:
        return [SegmentUse(0, 0) for _ in segments]

    async def garbage(_: int, __: int) -> list[bytes]:
        return []

    async def tombstones_of(_: int, limit: int) -> list[bytes]:
        return list(waiting)[:limit]

    async def fetch(*_: Any) -> bytes:
        return b""

    coordinator = SimpleNamespace(
        segment_use=segment_use, garbage=garbage, rows=SimpleNamespace(tombstones_of=tombstones_of)
    )
    settings = SimpleNamespace(redis=SimpleNamespace(shards=1))
    return SimpleNamespace(coordinator=coordinator, settings=settings, storage=SimpleNamespace(fetch=fetch))


async def found(monkeypatch: pytest.MonkeyPatch, *waiting: bytes) -> list[bytes]:
    monkeypatch.setattr(second_look, "MAX_WAITING", 3)
    return [one async for one in second_look.orphans(stores_with(*waiting), [ORPHAN, *waiting])]


async def test_an_object_that_waits_for_its_deletion_is_not_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await found(monkeypatch, b"a" * 16, b"b" * 16) == [ORPHAN]


async def test_with_too_many_waiting_objects_the_search_is_skipped_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the report said that there are none, an operator would let the sweep delete them."""
    with pytest.raises(second_look.TooManyWaiting, match="wait for their deletion"):
        await found(monkeypatch, b"a" * 16, b"b" * 16, b"c" * 16)
