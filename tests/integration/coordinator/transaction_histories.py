"""Random histories with transactions, applied to a coordinator and to the model, which must answer in the same way."""

from __future__ import annotations

from operator import attrgetter
from random import Random
from typing import Any

from redis.asyncio import Redis

from pipeline.audit.defects import Log
from pipeline.audit.transactions import check_transactions
from proxy.coordinator.interface import (
    LATEST_STABLE_TIMESTAMP,
    DeleteRequest,
    FindRequest,
    ListRequest,
    PartitionRun,
    ProposedBatch,
    RetainRequest,
)
from proxy.coordinator.interface_rewriting import Swap
from proxy.coordinator.interface_transactions import Enlistment, Marker, MarkersRead
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import shard_prefix, split_partition_key
from tests.coordinator_model import ModelCoordinator
from tests.integration.coordinator.test_against_model import without_times

TOPIC = bytes([9]) * 16
PARTITIONS = range(3)
LOGS = [(TOPIC, partition) for partition in PARTITIONS]
PRODUCERS = [0, 5, 77, 2**62 + 1]
EXPIRATION_MS = 86_400_000
OPERATIONS = {
    "commit": 12,
    "commit_again": 2,
    "enlist": 5,
    "apply_markers": 7,
    "find": 4,
    "list_offsets": 1,
    "delete_records": 1,
    "retain": 1,
    "pack": 2,
    "swap": 4,
    "recreate": 1,
    "forget_producers": 1,
}


class TransactionHistory:
    """Applies one random operation after another."""

    def __init__(self, seed: str, real: RedisCoordinator, client: Redis, shards: int) -> None:
        self.random = Random(seed)
        self.real = real
        self.model = ModelCoordinator(producer_id_expiration_ms=EXPIRATION_MS)
        self._client = client
        self._shards = shards
        self._segments = 0
        self._committed: list[tuple[bytes, list[PartitionRun]]] = []
        self.outcomes: dict[tuple[str, int], int] = {}
        """Number of answers by operation and error code, to see that a history is not trivial."""

    async def begin(self) -> None:
        await self.both("create_logs", TOPIC, PARTITIONS)

    async def step(self) -> None:
        (name,) = self.random.choices(list(OPERATIONS), list(OPERATIONS.values()))
        await getattr(self, f"_{name}")()

    async def both(self, method: str, *arguments: object) -> Any:
        real = await attrgetter(method)(self.real)(*arguments)
        model = await attrgetter(method)(self.model)(*arguments)
        found, expected = real, model
        if method in ("commit", "find"):
            found, expected = [without_times(one) for one in real], [without_times(one) for one in model]
        assert found == expected, f"{method}: {_differences(found, expected)}"
        return real

    def _count(self, name: str, code: int) -> None:
        self.outcomes[name, code] = self.outcomes.get((name, code), 0) + 1

    def _log(self) -> tuple[bytes, int]:
        return self.random.choice(LOGS)

    def _next_offset(self, log: tuple[bytes, int]) -> int:
        known = self.model.logs.get(log)
        return known.shadow.next_offset if known else 0

    def _near(self, log: tuple[bytes, int]) -> int:
        """Return an offset in the shadow's log near the next one to read."""
        return max(self._next_offset(log) + self.random.choice([-4, -2, -1, 0, 0, 0, 0, 1, 2]), 0)

    def _batch(self, log: tuple[bytes, int]) -> ProposedBatch:
        random, known = self.random, self.model.logs.get(log)
        producer_id, version = random.choice([-1, *PRODUCERS, *PRODUCERS]), random.choice([0, 1, 1, 2, 2])
        if producer_id < 0:
            return ProposedBatch(random.randint(1, 100), random.randint(1, 3), random.randint(0, 999), -1, -1, -1)
        epoch, sequence = random.choice([0, 0, 0, 1, 2]), random.choice([0, 0, 1, 5])
        state = known.producers.get(producer_id) if known else None
        if state and random.random() < 0.8:
            epoch = state.epoch if random.random() < 0.9 else state.epoch + 1
            same = state.epoch == epoch and state.batches
            sequence = (state.batches[-1][0] + state.batches[-1][1]) % 2**31 if same else 0
        markers_from = self._near(log) if version == 2 else -1
        numbers = (random.randint(1, 100), random.randint(1, 3), random.randint(0, 999))
        return ProposedBatch(*numbers, producer_id, epoch, sequence, version, markers_from)

    async def _commit(self) -> None:
        self._segments += 1
        segment, runs = self._segments.to_bytes(16, "big"), []
        for log in self.random.sample(LOGS, self.random.randint(1, len(LOGS))):
            batches = tuple(self._batch(log) for _ in range(self.random.randint(1, 4)))
            runs.append(PartitionRun(*log, 1, batches))
            first = batches[0]
            if first.transaction_version == 1 and self.random.random() < 0.6:
                await self._enlist_at(log, first.producer_id, first.producer_epoch, self._next_offset(log))
        for answer in await self.both("commit", segment, runs):
            for batch in answer.batches:
                self._count("commit", batch.error_code)
        self._committed = [*self._committed[-5:], (segment, runs)]

    async def _commit_again(self) -> None:
        """Retry runs, as batches that waited for a marker are."""
        if self._committed:
            segment, runs = self.random.choice(self._committed)
            some = self.random.sample(runs, self.random.randint(1, len(runs)))
            for answer in await self.both("commit", segment, some):
                for batch in answer.batches:
                    self._count("commit_again", batch.error_code)

    async def _enlist_at(self, log: tuple[bytes, int], producer_id: int, epoch: int, markers_from: int) -> None:
        request = Enlistment(*log, producer_id, epoch, markers_from)
        (answer,) = await self.both("transactions.enlist", [request])
        self._count("enlist", answer)

    async def _enlist(self) -> None:
        log, producer_id = self._log(), self.random.choice(PRODUCERS)
        await self._enlist_at(log, producer_id, self.random.choice([0, 0, 1, 2]), self._near(log))

    async def _apply_markers(self) -> None:
        parts = []
        for log in self.random.sample(LOGS, self.random.randint(1, len(LOGS))):
            at = begin = self._next_offset(log) if self.random.random() < 0.8 else self._near(log)
            markers = []
            if begin and self.random.random() < 0.05:
                end = self.random.randrange(max(begin - 4, 0), begin)
                parts.append(MarkersRead(*log, begin, end, self.random.randint(0, 3), ()))
                continue
            for _ in range(self.random.randint(0, 3)):
                at += self.random.choice([0, 0, 0, 1, 2])
                producer_id, known = self.random.choice(PRODUCERS), self.model.logs.get(log)
                state = known.producers.get(producer_id) if known else None
                epoch = (state.epoch if state else 0) + self.random.choice([-1, 0, 0, 0, 1])
                committed, times = self.random.random() < 0.5, (self.random.randint(0, 999), self.random.random() < 0.2)
                markers.append(Marker(at, producer_id, max(epoch, 0), self.random.randint(0, 3), committed, *times))
                at += 1
            end = at + self.random.choice([0, 0, 1])
            parts.append(MarkersRead(*log, begin, end, self.random.randint(0, 3), tuple(markers)))
        for applied in await self.both("transactions.apply_markers", parts):
            self._count("apply_markers", applied.ended)

    async def _find(self) -> None:
        log = self._log()
        known = self.model.logs.get(log)
        end = known.end if known else 0
        request = FindRequest(*log, self.random.randint(0, end + 1), self.random.choice([0, 100, 1_000]))
        (answer,) = await self.both("find", [request])
        self._count("aborted", len(answer.aborted))

    async def _list_offsets(self) -> None:
        times = (-1, -2, -3, LATEST_STABLE_TIMESTAMP, self.random.randint(0, 999))
        await self.both("list_offsets", [ListRequest(*self._log(), time_ms) for time_ms in times])

    async def _delete_records(self) -> None:
        log = self._log()
        known = self.model.logs.get(log)
        before = self.random.choice([-1, self.random.randint(0, known.end if known else 1)])
        await self.both("delete_records", [DeleteRequest(*log, before)])

    async def _retain(self) -> None:
        await self.both("retain", [RetainRequest(*self._log(), -1, self.random.randint(0, 2_000), False)])

    async def _pack(self) -> None:
        """Pack rows; those appended just now are young."""
        await self.real.pack_rows(LOGS, 0)

    async def _swap(self) -> None:
        """Merge or compact neighbouring rows, often those near the oldest open transaction, and remove some markers."""
        log = self._log()
        known = self.model.logs.get(log)
        rows = known.rows if known else []
        if not rows:
            return
        first = self.random.randrange(len(rows))
        markers = [one.last_offset for one in known.aborted]
        near = self.random.choice([-1, known.stable, self.random.choice(markers or [-1])])
        if near >= 0:
            place = next((place for place, row in enumerate(rows) if row.last_offset >= near), first)
            first = max(place - self.random.randint(0, 3), 0)
        old = tuple(rows[first : first + self.random.randint(1, 4)])
        self._segments += 1
        new = old[0]._replace(
            last_offset=old[-1].last_offset,
            segment=self._segments.to_bytes(16, "big"),
            position=1,
            length=sum(row.length for row in old) + 1,
            max_timestamp_ms=max(row.max_timestamp_ms for row in old),
            log_append_time=False,
            offsets_in_place=True,
        )
        ended = [
            one.last_offset for one in known.aborted if old[0].base_offset <= one.last_offset <= old[-1].last_offset
        ]
        if self.random.random() < 0.2 and old[-1].last_offset < known.stable:
            new = None
        elif self.random.random() < 0.5:
            ended = self.random.sample(ended, self.random.randint(0, len(ended)))
        (found,) = await self.real.find([FindRequest(*log, max(old[0].base_offset, known.start), 1 << 40)])
        own = tuple(row for row in found.rows if old[0].base_offset <= row.base_offset <= old[-1].last_offset)
        if [row[:6] for row in own] != [row[:6] for row in old]:
            return  # the first row begins before the log start
        times = own[0].append_time_ms
        placed = new and new._replace(append_time_ms=times)
        real = await self.real.rows.replace([Swap(*log, own, placed, tuple(ended))])
        assert real == await self.model.rows.replace([Swap(*log, old, new, tuple(ended))])
        self._count("ended", min(len(ended), 1))
        self._count("swap", real[0])

    async def _recreate(self) -> None:
        if self.random.random() < 0.2:
            partitions = [self.random.choice(PARTITIONS)]
            await self.both("delete_logs", TOPIC, partitions)
            self._committed = []
        await self.both("create_logs", TOPIC, PARTITIONS)

    async def _forget_producers(self) -> None:
        await self.both("forget_producers", LOGS)

    async def compare(self) -> None:
        """Compare everything that readers and operators see, and the books."""
        await self.both("transactions.positions", LOGS)
        starts = [log.start if log else 0 for log in map(self.model.logs.get, LOGS)]
        await self.both("find", [FindRequest(*log, start, 1 << 40) for log, start in zip(LOGS, starts, strict=True)])
        for log in LOGS:
            await self.both("producers", *log)
            await self.both("describe", log[0], [log[1]])
            await self._compare_page(log)
        opened = {log for log, known in self.model.logs.items() if known.unstable()}
        assert opened <= set(await self.real.transactions.followed(0))
        await self._compare_open_transactions()
        segments = sorted({row.segment for known in self.model.logs.values() for row in known.rows})
        await self.both("segment_use", [segment for segment in segments if segment[0] == 0])
        await self._compare_keys()

    async def _compare_page(self, log: tuple[bytes, int]) -> None:
        """The audit sees the model's transactions, and finds nothing wrong with them."""
        page, expected = [await one.rows.index_page(*log, 0) for one in (self.real, self.model)]
        assert (page.log, sorted(page.open), page.aborted) == (expected.log, sorted(expected.open), expected.aborted)
        assert list(check_transactions(Log("history", *log), page, at_beginning=True)) == []

    async def _compare_open_transactions(self) -> None:
        real = await self.real.transactions.open_transactions()
        model = await self.model.transactions.open_transactions()
        assert sorted(one[:-1] for one in real) == sorted(one[:-1] for one in model), "times are not the model's"

    async def _compare_keys(self) -> None:
        """The open and aborted transactions are the model's, and nothing of a deleted log stays."""
        found: dict[str, set[bytes]] = {}
        for shard in range(self._shards):
            prefix = shard_prefix(shard)
            for name in ("open", "aborted", "followed"):
                found.setdefault(name, set()).update(await self._client.zrange(prefix + name, 0, -1))
            for name in ("txn", "shadows"):
                found.setdefault(name, set()).update(await self._client.hkeys(prefix + name))
        for members in found.values():
            assert {split_partition_key(member[:20]) for member in members} <= self.model.logs.keys()
        logs = self.model.logs.values()
        assert len(found["open"]) == sum(len(log.unstable()) for log in logs)
        assert len(found["aborted"]) == sum(len(log.aborted) for log in logs)
        assert len(found["txn"]) == sum(len(log.transactions) for log in logs)


def _differences(found: Any, expected: Any) -> list[tuple[Any, Any]]:
    """Return the parts that differ, without what is equal around them."""
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)) and len(found) == len(expected):
        pairs = zip(found, expected, strict=True)
        return [difference for one, other in pairs if one != other for difference in _differences(one, other)]
    return [(found, expected)]
