"""The classic topics of a Produce: what is counted of them, and the broker's answer."""

from __future__ import annotations

from collections.abc import Callable

from proxy.accounting.accounting import Accounts
from proxy.accounting.topic_count import TopicCount
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.session import Session
from proxy.producing.confirmed import Confirmation
from proxy.protocol.api_keys import PRODUCE
from proxy.routing.addresses import Addresses
from proxy.topics.topics import Topics
from proxy.wire.endpoints import rewrite_node_endpoints
from proxy.wire.frames import Decision
from proxy.wire.header import response_header_length
from proxy.wire.primitives import Buffer
from proxy.wire.produce import ProduceRequest
from proxy.wire.steps import Steps, at_once, in_slices
from proxy.wire.topic_walk import CountTopic

_FIRST_NODE_ENDPOINTS_VERSION = 10


class ClassicProduce:
    """The part of a Produce that the broker gets."""

    def __init__(self, *, accounts: Accounts, addresses: Addresses, topics: Topics) -> None:
        self._accounts = accounts
        self._addresses = addresses
        self._topics = topics

    def rewrite(
        self, session: Session, client_id: str | None, version: int
    ) -> Callable[[memoryview], list[Buffer]] | None:
        """Return the rewrite of the broker's answer: from v10 on, new leaders come with their addresses (KIP-951)."""
        if version < _FIRST_NODE_ENDPOINTS_VERSION:
            return None
        return lambda body: rewrite_node_endpoints(PRODUCE, body, version, self._addresses.of(session, client_id))

    def counter(self, session: Session, client_id: str | None, topic: str | bytes) -> TopicCount:
        """Return a counter of the records of one topic of a client."""
        return self._accounts.classic_topic(session, client_id, "produce", topic)

    def count_passing(self, session: Session, client_id: str | None) -> CountTopic:
        """Count records that stream through while every topic is classic, and note which topics those are."""
        count, note = self._accounts.classic(session, client_id, "produce"), self._topics.passed

        def counted(topic: str | bytes, size: int) -> None:
            note(topic)
            count(topic, size)

        return counted

    def send(
        self,
        client: Client,
        request: Request,
        classic: ProduceRequest,
        buffers: list[Buffer],
        answered: Callable[[memoryview], None],
        lost: Callable[[], None],
    ) -> None:
        """Send a request of these topics to the broker; `answered` gets the body of its answer, `lost` means none."""
        names = [topic for topic, _, _ in classic.topics if isinstance(topic, str)]
        if self._topics.is_current or not names:
            client.send_upstream(buffers, ClassicHalf(request, answered, lost))
            return
        ids = {name: self._topics.classic.id_of(name) for name in names}
        confirmation = Confirmation(request, ids, answered, lost)
        client.send_upstream(buffers, ClassicHalf(request, confirmation.hold, lost))
        client.send_upstream(confirmation.question(), confirmation)

    def count(self, session: Session, client_id: str | None, classic: ProduceRequest) -> None:
        """Count records of classic topics, by topic, between the client's rack and the broker's."""
        at_once(self.count_in_steps(session, client_id, classic))

    def count_in_steps(self, session: Session, client_id: str | None, classic: ProduceRequest) -> Steps[None]:
        """Do `count` with pauses."""
        count = self._accounts.classic(session, client_id, "produce")
        for topics in in_slices(classic.topics):
            for topic, partitions, _ in topics:
                count(topic, sum(len(partition.records) for partition in partitions if partition.records is not None))
            yield


class ClassicHalf:
    """Expects the broker's answer to the classic part of a mixed Produce (`expected.Expected`).

    `answered` gets the body of the answer; `lost` is called if the connection ends first.
    """

    __slots__ = ("_answered", "_lost", "_version", "correlation_id")

    def __init__(self, request: Request, answered: Callable[[memoryview], None], lost: Callable[[], None]) -> None:
        self.correlation_id = request.correlation_id
        self._version = request.api_version
        self._answered = answered
        self._lost = lost

    def response_begins(self, size: int) -> Decision:
        """Hold the answer: it is merged."""
        return Decision.HOLD

    def response_held(self, frame: memoryview) -> None:
        """Take the broker's part of the answer."""
        self._answered(frame[response_header_length(PRODUCE, self._version, frame) :])

    def response_part(self, part: memoryview, last: bool) -> None:
        """Never streamed."""
        raise AssertionError("the answer to a classic half is held")

    def response_lost(self) -> None:
        """Take note that the broker is gone."""
        self._lost()
