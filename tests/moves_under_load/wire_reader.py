"""A consumer that uses only the wire protocol, at one version of Fetch and Metadata v5, like the oldest clients.

It hides nothing: an error that a client library would handle by itself is printed too, as a retriable one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from proxy.wire.cold import encode, milliseconds, nested, read_response
from proxy.wire.header import request_header, response_header_length
from tests.moves_under_load.books import CONNECTION, RETRIABLE, Place
from tests.moves_under_load.voice import Voice

FETCH, METADATA = 1, 3
METADATA_VERSION = 5
METADATA_SECONDS = 2.0
ASK_SECONDS = 30.0
"""Timeout equal to `request.timeout.ms` of clients."""
METADATA_ASK_SECONDS = 3.0
PAUSE_SECONDS = 0.2
MAX_WAIT_MS = 500
MAX_BYTES, PARTITION_BYTES = 1 << 20, 1 << 17
FAILURES = (OSError, asyncio.IncompleteReadError, TimeoutError)


class Connection:
    """A connection that sends one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, api_key: int, api_version: int, body: bytes, seconds: float) -> Any:
        """Return the response. Raises OSError, IncompleteReadError or TimeoutError; the next request then
        reconnects."""
        try:
            async with asyncio.timeout(seconds):
                if self._streams is None:
                    self._streams = await asyncio.open_connection(*self._address, limit=1 << 24)
                reader, writer = self._streams
                frame = request_header(api_key, api_version, 1, "wire-reader") + body
                writer.write(len(frame).to_bytes(4, "big") + frame)
                answer = memoryview(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
        except BaseException:
            self.close()
            raise
        return read_response(api_key, api_version, answer[response_header_length(api_key, api_version, answer) :])

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class WireReader:
    """Reads all partitions of some topics from their leaders, with one Fetch at a time per leader."""

    def __init__(self, voice: Voice, bootstrap: str, topics: list[str], version: int) -> None:
        self._voice = voice
        self._bootstrap = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in bootstrap.split(","))]
        self._topics = topics
        self._version = version
        self._schema: Any = load_request_schema(FETCH, version)
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[Place, int] = {}
        self._positions: dict[Place, int] = {}
        self._stale = asyncio.Event()

    async def read(self) -> None:
        """Read until the process ends."""
        async with asyncio.TaskGroup() as group:
            fetching: set[int] = set()
            while True:
                await self._look()
                for node in self._brokers.keys() - fetching:
                    fetching.add(node)
                    group.create_task(self._fetch_from(node))
                try:
                    async with asyncio.timeout(METADATA_SECONDS):
                        await self._stale.wait()
                    await asyncio.sleep(PAUSE_SECONDS)
                except TimeoutError:
                    pass
                self._stale.clear()

    async def _look(self) -> None:
        schema: Any = load_request_schema(METADATA, METADATA_VERSION)
        asked = tuple(nested(schema, "topics")(name=topic) for topic in self._topics)
        body = encode(schema(topics=asked, allow_auto_topic_creation=False))
        for address in [*self._brokers.values(), *self._bootstrap]:
            connection = Connection(address)
            try:
                answer = await connection.ask(METADATA, METADATA_VERSION, body, METADATA_ASK_SECONDS)
            except FAILURES:
                continue
            finally:
                connection.close()
            if not answer.brokers:
                continue
            self._brokers = {one.node_id: (one.host, one.port) for one in answer.brokers}
            for topic in answer.topics:
                for one in topic.partitions:
                    self._leaders[topic.name, one.partition_index] = one.leader_id
                    self._positions.setdefault((topic.name, one.partition_index), 0)
            return

    async def _fetch_from(self, node: int) -> None:
        connection, address = None, None
        turn = 0
        while True:
            asked = sorted(place for place, leader in self._leaders.items() if leader == node)
            if not asked or node not in self._brokers:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if connection is None or address != self._brokers[node]:
                if connection is not None:
                    connection.close()
                address = self._brokers[node]
                connection = Connection(address)
            turn += 1
            first = turn % len(asked)  # in turns, so that none of them starves
            try:
                moved = await self._fetch(connection, asked[first:] + asked[:first])
            except FAILURES:
                self._voice.error(CONNECTION)
                moved = True
            if moved:
                self._stale.set()
                await asyncio.sleep(PAUSE_SECONDS)

    async def _fetch(self, connection: Connection, places: list[Place]) -> bool:
        """Fetch once; return True if the leaders should be looked up again."""
        offsets = {place: self._positions[place] for place in places}
        answer = await connection.ask(FETCH, self._version, encode(self._request(offsets)), ASK_SECONDS)
        moved = False
        for topic in answer.responses:
            for one in topic.partitions:
                place = (topic.topic, one.partition_index)
                offset = offsets.get(place)
                if offset is None:
                    self._voice.error("an answer about a partition that was not asked for")
                elif offset == self._positions[place]:  # otherwise another broker's answer came first
                    moved |= self._take(place, offset, one)
        return moved

    def _take(self, place: Place, offset: int, answer: Any) -> bool:
        error = answer.error_code
        if error is ErrorCode.offset_out_of_range:
            self._voice.reset(place, offset)
            self._positions[place] = 0
        elif error is not ErrorCode.none:
            self._voice.error(f"{RETRIABLE}{error.name}" if error.retriable else error.name)
            return True
        for record in _records(bytes(answer.records or b"")):
            if record.offset < offset:
                continue
            self._positions[place] = record.offset + 1
            self._voice.record(place, record.offset, record.key, record.value, answer.high_watermark)
        return False

    def _request(self, offsets: dict[Place, int]) -> Any:
        topic_type = nested(self._schema, "topics")
        partition_type = nested(topic_type, "partitions")
        by_topic: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            known = {
                "partition": partition,
                "fetch_offset": offset,
                "partition_max_bytes": PARTITION_BYTES,
                "current_leader_epoch": -1,
                "log_start_offset": -1,
            }
            by_topic.setdefault(topic, []).append(partition_type(**_of(partition_type, known)))
        asked = tuple(topic_type(topic=topic, partitions=tuple(parts)) for topic, parts in by_topic.items())
        known = {
            "max_wait": milliseconds(MAX_WAIT_MS),
            "min_bytes": 1,
            "max_bytes": MAX_BYTES,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": asked,
            "forgotten_topics_data": (),
            "rack_id": "",
        }
        return self._schema(**_of(self._schema, known))


def _of(entity_type: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that this version has."""
    return {field.name: values[field.name] for field in fields(entity_type) if field.name in values}


def _records(data: bytes) -> Iterator[Any]:
    """Return the records of all complete batches; the last batch may be cut off."""
    at = 0
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if end > len(data):
            return
        batch = DefaultRecordBatch(data[at:end])
        if not batch.validate_crc():
            raise ValueError(f"a batch with a wrong CRC at byte {at}")
        yield from batch
        at = end
