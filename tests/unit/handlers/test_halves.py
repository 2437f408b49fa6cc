"""Topics that may be diskless or not, as far as this proxy knows: no broker is asked about them."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v9 import request as v9
from kio.schema.list_offsets.v9 import response as v9_response

from proxy.client.rights import RIGHTS, ClientRights, Rights
from proxy.coordinator.interface import LATEST_TIMESTAMP
from proxy.handlers.halves import Halves
from proxy.handlers.list_offsets import ListOffsets
from proxy.handlers.offsets import Offsets
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, read_request, read_response
from tests.registry_model import ModelTopicRegistry
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import settings_of

LIST_OFFSETS, VERSION = 2, 9


class Client(ClientDouble):
    """A client whose broker says offset 7 of everything."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(self._broker)
        self.session[RIGHTS] = Rights(1.0, lambda: 0.0)
        unused: Any = None
        settings = settings_of()
        halves = Halves(topics=topics, rights=ClientRights(settings, lambda: 0.0))
        offsets = Offsets(
            settings.fetch,
            settings.redis,
            time_lookup=unused,
            coordinates=unused,
            throttled_log=unused,
            now=lambda: 0.0,
        )
        self.handler = ListOffsets(halves, offsets)
        self.broker_was_asked: list[str] = []

    def _broker(self, api_key: int, version: int, body: bytes) -> Any:
        topics = read_request(api_key, version, memoryview(body)).topics
        self.broker_was_asked += [str(topic.name) for topic in topics]
        return v9_response.ListOffsetsResponse(
            throttle_time=milliseconds(0),
            topics=tuple(
                v9_response.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        v9_response.ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            error_code=ErrorCode(NONE),
                            timestamp=-1,
                            offset=7,
                            leader_epoch=0,
                        )
                        for one in topic.partitions
                    ),
                )
                for topic in topics
            ),
        )

    async def list(self, *names: str) -> list[tuple[str, int, int]]:
        """Return (topic, error code, offset) of partition 0; nothing if the broker answers all of it."""
        partitions = (v9.ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP),)
        topics = tuple(v9.ListOffsetsTopic(name=name, partitions=partitions) for name in names)
        body = encode(v9.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics))
        answer = await self.answer(self.handler.list_offsets, request_of(LIST_OFFSETS, VERSION, body))
        if answer is None:
            return []
        answered = read_response(LIST_OFFSETS, VERSION, memoryview(answer))
        return [
            (str(topic.name), int(one.error_code), one.offset) for topic in answered.topics for one in topic.partitions
        ]


@pytest.fixture
async def cut_off() -> Client:
    """Return a proxy that has seen the topic `seen`, which the brokers confirmed, and then lost its lease."""
    runs = True
    topics = Topics(ModelTopicRegistry(), lease_runs=lambda: runs)
    await topics.registry.reserve("reserved", 1, {}, "owner")
    await topics.load()
    client = Client(topics)
    assert await client.list("seen") == []
    assert len(client.forwarded) == 1
    topics.classic.confirm("seen", bytes(16), asked_s=topics.classic.now(), is_current=True)
    runs = False
    return client


async def test_a_topic_that_was_not_seen_is_not_asked_about(cut_off: Client) -> None:
    assert await cut_off.list("other") == [("other", KAFKA_STORAGE_ERROR, -1)]
    assert cut_off.broker_was_asked == []
    assert len(cut_off.forwarded) == 1


async def test_the_others_of_the_request_are(cut_off: Client) -> None:
    assert sorted(await cut_off.list("other", "seen")) == [("other", KAFKA_STORAGE_ERROR, -1), ("seen", NONE, 7)]
    assert cut_off.broker_was_asked == ["seen"]


async def test_known_classic_topics_are_forwarded_unchanged(cut_off: Client) -> None:
    assert await cut_off.list("seen") == []
    assert len(cut_off.forwarded) == 2
