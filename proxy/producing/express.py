"""Small classic Produces on the express lane: one topic and one partition, like the client's last one (decision 0120).

Whether the topic is classic is looked up for every request, as on the ordinary path. Only the place where the topic's
name stands, and the counter, are kept.
"""

from __future__ import annotations

from proxy.accounting.topic_count import TopicCount
from proxy.client.client import Client
from proxy.client.express import CLIENT_ID_AT, SIZE_BYTES
from proxy.client.slots import BrokerSlot
from proxy.producing.classic import ClassicProduce
from proxy.protocol.api_keys import PRODUCE
from proxy.topics.topics import Topics
from proxy.wire.produce import FIRST_FLEXIBLE
from proxy.wire.produce_express import PlainAnswer, plain_answer, read_only_partition, record_bytes

_REPLACED = "\ufffd"
"""Replacement for bytes of a client ID that are not UTF-8, which the two ordinary paths read in different ways."""
_HEADER_BYTES = CLIENT_ID_AT - SIZE_BYTES


class PlainProduceSlot(BrokerSlot):
    """The place of an answer that passes as it came if it is plain; otherwise it is rewritten."""

    __slots__ = ("plain",)
    plain: PlainAnswer

    def response_whole(self, frame: bytes) -> bool:
        """Pass a plain answer on; see `BrokerSlot`."""
        pass_whole = self.answers.pass_whole
        return not self.done and self.plain.is_plain(frame) and pass_whole(self, frame)


class ExpressProduce:
    """Recognizes Produces like one that was read (`client.express.Express`)."""

    __slots__ = (
        "_answers",
        "_client_id",
        "_count",
        "_flexible",
        "_partition_at",
        "_plain",
        "_prefix",
        "_rewrite",
        "_session",
        "_topic",
        "_topics",
        "api_version",
        "held",
    )

    def __init__(
        self,
        client: Client,
        client_id: str | None,
        version: int,
        topics: Topics,
        classic: ClassicProduce,
        *,
        topic: str | bytes,
        prefix: bytes,
    ) -> None:
        self.api_version = version
        self.held = False
        self._answers = client.answers
        self._session = client.session
        self._client_id = client_id
        self._topics = topics
        self._topic = topic
        self._prefix = prefix
        self._partition_at = CLIENT_ID_AT + len(prefix)
        self._flexible = version >= FIRST_FLEXIBLE
        self._count: TopicCount = classic.counter(client.session, client_id, topic)
        self._rewrite = classic.rewrite(client.session, client_id, version)
        self._plain = plain_answer(topic, version)

    def is_like(self, frame: memoryview) -> bool:
        """Return whether a request frame (without its size) has the same client, acks, timeout and topic."""
        return frame[_HEADER_BYTES : _HEADER_BYTES + len(self._prefix)] == self._prefix

    def take(self, data: bytes, correlation_id: int) -> BrokerSlot | None:
        """Take a request whose topic is classic at this moment; see `Express`."""
        if not data.startswith(self._prefix, CLIENT_ID_AT):
            return None
        size = record_bytes(data, self._partition_at, flexible=self._flexible)
        if not size:
            return None
        if not self._topics.pass_while_leased(self._topic):
            return None
        self.held = self._topics.any_diskless
        self._session.client_id = self._client_id
        self._count.add(size)
        if self._plain is None:
            return BrokerSlot(self._answers, PRODUCE, self.api_version, correlation_id)
        slot = PlainProduceSlot(self._answers, PRODUCE, self.api_version, correlation_id, self._rewrite)
        slot.plain = self._plain
        return slot


def learn(
    client: Client,
    client_id: str | None,
    frame: memoryview,
    version: int,
    topics_at: int,
    topics: Topics,
    classic: ClassicProduce,
) -> None:
    """Keep what the next Produce like this one is recognized by, if it is a whole one of one partition.

    `frame` is without its size. The request waits for an answer, and went to the broker.
    """
    known = client.session.express.get(PRODUCE)
    if isinstance(known, ExpressProduce) and known.api_version == version and known.is_like(frame):
        return
    found = read_only_partition(frame, topics_at, version)
    if found is None or (client_id is not None and _REPLACED in client_id):
        return
    topic, partition_at = found
    prefix = bytes(frame[_HEADER_BYTES:partition_at])
    client.session.express[PRODUCE] = ExpressProduce(
        client, client_id, version, topics, classic, topic=topic, prefix=prefix
    )
