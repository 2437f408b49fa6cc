"""The stored state of the coordinator's store, whatever dies in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator.interface_registry import RegistryChange
from proxy.coordinator.packing_state import ShardState
from proxy.guard.remembered import Remembered, keys_of, pack, read_remembered, remember, unpack
from proxy.storage.interface import ObjectMissing, StorageError

states = st.builds(
    ShardState,
    st.binary(min_size=8, max_size=8),
    st.integers(1, 2**53),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**53),
    st.integers(0, 2**53),
    st.integers(0, 2**53),
    st.integers(0, 2**53),
    st.integers(0, 2**53),
    st.binary(max_size=80),
)
known = st.builds(
    Remembered,
    st.just("one"),
    st.dictionaries(st.integers(0, 4095), states, max_size=4),
    st.builds(RegistryChange, st.integers(-1, 2**53), st.binary(min_size=8, max_size=8)),
    st.integers(0, 2**53),
)


SIDE = "0123456789abcdef"


class Objects:
    """Object storage in memory that dies after some operations; an upload may leave a part of its object."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.left = 10**9
        self.torn = False

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StorageError("died")

    async def objects(self, folder: str) -> AsyncIterator[Any]:
        for key in list(self.stored):
            if key.startswith(folder):
                yield SimpleNamespace(key=key)

    async def fetch(self, key: str) -> bytes:
        self._step()
        if key not in self.stored:
            raise ObjectMissing(key)
        return self.stored[key]

    async def upload(self, key: str, data: bytes, length: int) -> None:
        assert key not in self.stored
        if self.torn and self.left == 0:
            self.stored[key] = data[: length // 2]
        self._step()
        self.stored[key] = data

    async def delete(self, keys: list[str]) -> None:
        self._step()
        for key in keys:
            self.stored.pop(key, None)


@given(known)
def test_a_state_is_read_completely_or_not_at_all(one: Remembered) -> None:
    packed = pack(one)
    assert (read := unpack(packed)) == one
    assert read is not None
    assert [state.lives for state in read.shards.values()] == [one.shards[shard].lives for shard in read.shards]
    for cut in {0, 1, len(packed) // 2, len(packed) - 1}:
        assert unpack(packed[:cut]) is None


@given(st.binary(max_size=50))
def test_other_bytes_are_not_a_state(packed: bytes) -> None:
    assert unpack(packed) is None
    assert unpack(json.dumps({"format": 2, "shards": [packed.hex()]}).encode()) is None


@given(st.lists(st.tuples(known, st.integers(0, 6), st.booleans()), max_size=8))
def test_a_state_never_goes_back_even_if_a_writer_dies(history: list[tuple[Remembered, int, bool]]) -> None:
    storage: Any = Objects()
    expected = Remembered("one")

    async def run() -> None:
        nonlocal expected
        for one, steps, torn in history:
            storage.left, storage.torn = steps, torn
            try:
                await remember(storage, SIDE, one)
                expected = expected.merged(one)
            except StorageError:
                pass
            storage.left = 10**9
            found = await read_remembered(storage, "one")
            assert found.merged(replace(expected, number=0)) == found, "something was forgotten"
            expected = replace(found, number=0)  # the last write of a dead writer counts too

    asyncio.run(run())
    assert storage.stored.keys() <= set(keys_of(SIDE))


@given(known)
def test_states_of_another_store_are_ignored(one: Remembered) -> None:
    storage: Any = Objects()

    async def run() -> None:
        await remember(storage, SIDE, one)
        assert await read_remembered(storage, "another") == Remembered("another")

    asyncio.run(run())


def test_a_known_state_is_not_written_again() -> None:
    storage: Any = Objects()
    one = Remembered("one", {0: ShardState(bytes(8), 5)}, RegistryChange(3))

    async def run() -> None:
        await remember(storage, SIDE, one)
        storage.left = 1  # only reads are allowed
        assert (await remember(storage, SIDE, one)).number == 1

    asyncio.run(run())
