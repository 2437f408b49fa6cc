"""A broker that answers which topics there are."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from proxy.brokers.upstream import BrokerUnreachable
from proxy.protocol.api_keys import METADATA
from proxy.wire.cold import encode, milliseconds, read_request


class NamedTopics:
    """A broker that knows some topics, IDs by name, and hides others from the proxy; it answers Metadata v12."""

    def __init__(self, there: dict[str, bytes], hidden: tuple[str, ...] = ()) -> None:
        self.there, self.hidden = there, hidden
        self.asked: list[str | bytes] = []
        self.away = False

    async def ask(self, api_key: int, version: int, body: Any) -> memoryview:
        if self.away:
            raise BrokerUnreachable("away")
        wanted: Any = read_request(METADATA, version, memoryview(body))
        names = {topic_id: name for name, topic_id in self.there.items()}
        topics = []
        for one in self._all() if wanted.topics is None else wanted.topics:
            topic_id: bytes | None = None if one.topic_id is None else one.topic_id.bytes
            name: Any = names.get(topic_id or b"") if one.name is None else str(one.name)
            self.asked.append((topic_id or b"") if one.name is None else name)
            known = self.there.get(name or "")
            error = ErrorCode.none
            if known is None:
                error = ErrorCode.unknown_topic_id if one.name is None else ErrorCode.unknown_topic_or_partition
            if name in self.hidden:
                error = ErrorCode.topic_authorization_failed
            told_id = known or topic_id
            topics.append(
                MetadataResponseTopic(
                    error_code=error,
                    name=name,
                    topic_id=None if told_id is None else UUID(bytes=told_id),
                    partitions=(),
                )
            )
        broker = MetadataResponseBroker(node_id=BrokerId(1), host="broker", port=i32(9092), rack=None)
        response = MetadataResponse(
            throttle_time=milliseconds(0), brokers=(broker,), controller_id=BrokerId(1), topics=tuple(topics)
        )
        return memoryview(encode(response))

    def _all(self) -> list[MetadataRequestTopic]:
        return [MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in self.there]
