"""Reads of the journal, from the leaders of its partitions; all of them are retried within the timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import TypeVar

from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config.journal import Journal
from proxy.coordinator.interface_journal import JournalRecord, JournalUnavailable, PositionTrimmed
from proxy.journal import messages
from proxy.journal.batches import read_batches
from proxy.journal.connections import Connections
from proxy.journal.errors import described
from proxy.journal.leaders import Leader, Leaders
from proxy.journal.positions import KnownEnds
from proxy.protocol.api_keys import DELETE_RECORDS, FETCH, LIST_OFFSETS
from proxy.protocol.errors import NONE, OFFSET_OUT_OF_RANGE, POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED
from proxy.records.batches import RecordsError
from proxy.wire.errors import ProtocolError

Result = TypeVar("Result")

_FINAL = frozenset({TOPIC_AUTHORIZATION_FAILED, POLICY_VIOLATION, OFFSET_OUT_OF_RANGE})
"""Errors that another attempt would not change."""

_RECORDS_AT_A_TIME = 256
"""Number of records that are parsed without a pause: about a millisecond."""


class _TryAgain(Exception):
    """An attempt failed, and another one may succeed."""


class Reads:
    """Reads and trims the partitions of one journal. Each method raises JournalUnavailable, and nothing is changed."""

    def __init__(
        self, topic: messages.Topic, settings: Journal, leaders: Leaders, connections: Connections, known: KnownEnds
    ) -> None:
        self._topic = topic
        self._settings = settings
        self._leaders = leaders
        self._connections = connections
        self._known = known
        self._timeout_s = settings.timeout_ms / 1000

    async def read(self, partition: int, from_position: int, max_bytes: int) -> list[JournalRecord]:
        """Return records from a position on. Raises PositionTrimmed, too."""
        max_bytes = min(max_bytes, self._settings.read_max_bytes)

        async def fetch(connection: ServiceConnection, leader: Leader) -> list[JournalRecord] | None:
            floor = self._known.of(partition)
            body = messages.fetch_request(self._topic, partition, leader.epoch, from_position, max_bytes)
            answer = messages.fetch_answer(await connection.ask(FETCH, messages.FETCH_VERSION, body))
            if answer.error_code == OFFSET_OUT_OF_RANGE:
                return None
            _check(answer.error_code)
            records = await _all_of(read_batches(b"".join(answer.records), from_position))
            if records:
                self._known.learn(partition, records[-1].position + 1)
            elif from_position < floor:
                # The high watermark of a new leader is behind for a moment.
                raise _TryAgain(f"the leader does not return the record at position {from_position} yet")
            return records

        records = await self._from_leader(partition, fetch)
        if records is not None:
            return records
        start = await self.start(partition)
        if from_position < start:
            raise PositionTrimmed(start)
        await self.end(partition)  # which raises an error if the journal was truncated
        return []

    async def end(self, partition: int) -> int:
        """Return the leader's high watermark."""
        end = await self._list(partition, messages.LATEST)
        self._known.learn(partition, end)
        return end

    async def start(self, partition: int) -> int:
        """Return the leader's log start offset."""
        return await self._list(partition, messages.EARLIEST)

    async def _list(self, partition: int, timestamp: int) -> int:
        async def ask(connection: ServiceConnection, leader: Leader) -> int:
            floor = self._known.of(partition) if timestamp == messages.LATEST else 0
            body = messages.list_offsets_request(self._topic, partition, leader.epoch, timestamp)
            answer = messages.list_offsets_answer(
                await connection.ask(LIST_OFFSETS, messages.LIST_OFFSETS_VERSION, body)
            )
            _check(answer.error_code)
            if answer.offset < floor:
                raise JournalUnavailable(self._known.lost(partition, floor, answer.offset), appended=False)
            return answer.offset

        return await self._from_leader(partition, ask)

    async def trim(self, partition: int, before: int) -> int:
        """Delete the records before a position, and return the new start."""
        await self._refresh(self._leaders.version)  # DeleteRecords names the topic, so its ID is checked first

        async def ask(connection: ServiceConnection, leader: Leader) -> int:
            body = messages.delete_records_request(self._topic, partition, before, self._settings.attempt_timeout_ms)
            answer = messages.delete_records_answer(
                await connection.ask(DELETE_RECORDS, messages.DELETE_RECORDS_VERSION, body)
            )
            _check(answer.error_code)
            return answer.offset

        return await self._from_leader(partition, ask)

    async def _from_leader(
        self, partition: int, ask: Callable[[ServiceConnection, Leader], Awaitable[Result]]
    ) -> Result:
        """Return what the leader answers, after retries."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s
        backoff_s = self._settings.retry_backoff_ms / 1000
        failures: list[str] = []
        while True:
            version = self._leaders.version
            try:
                async with asyncio.timeout_at(deadline_s):
                    leader = self._leaders.of(partition)
                    if leader is None:
                        raise _TryAgain("it has no leader")
                    return await ask(self._connections.for_reads(leader.node_id), leader)
            except TimeoutError:
                # An attempt that time cut short has no cause of its own, if there was one before it.
                failures = failures or [f"no answer within {self._timeout_s:g} s"]
            except (_TryAgain, BrokerUnreachable, ProtocolError, RecordsError) as error:
                failures.append(str(error))
            if loop.time() + backoff_s >= deadline_s:
                reason = "; ".join(dict.fromkeys(failures[-2:]))
                raise JournalUnavailable(f"partition {partition} of {self._topic.name}: {reason}", appended=False)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, self._settings.retry_backoff_max_ms / 1000)
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._leaders.refresh(version)
            except TimeoutError:
                pass
            except BrokerUnreachable as error:
                failures.append(str(error))
            del failures[:-2]

    async def _refresh(self, version: int) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._leaders.refresh(version)
        except (TimeoutError, BrokerUnreachable) as error:
            raise JournalUnavailable(f"no broker says who leads: {error}", appended=False) from error


def _check(error_code: int) -> None:
    """Raise JournalUnavailable for a final error, and _TryAgain for others."""
    if error_code in _FINAL:
        raise JournalUnavailable(described(error_code), appended=False)
    if error_code != NONE:
        raise _TryAgain(described(error_code))


async def _all_of(records: Iterator[JournalRecord]) -> list[JournalRecord]:
    """Return all records, with pauses: an answer may hold many thousands."""
    found = list(islice(records, _RECORDS_AT_A_TIME))
    count = len(found)
    while count == _RECORDS_AT_A_TIME:
        await asyncio.sleep(0)
        more = list(islice(records, _RECORDS_AT_A_TIME))
        found += more
        count = len(more)
    return found
