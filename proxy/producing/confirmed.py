"""A Produce to a classic topic by its name, while this proxy has no lease: is it still the same topic?

Other proxies may have deleted the topic meanwhile, and recreated it as a diskless one. The broker then has put the
records into the log of its placeholder topic, where no reader finds them. So the broker's answer is held until the
broker, which was asked for the topic's ID right after the Produce and on the same connection, says that the name still
has the ID that it had while the lease ran. A broker knows of a topic's ID before it appends to that topic, and an ID
never comes back: the records are in the log of the classic topic. If the ID is another one, the client gets a retriable
error for what the broker accepted, and for what was too large for a placeholder topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from proxy.client.request import Request
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, NONE
from proxy.telemetry.throttled_log import NAMES_SHOWN
from proxy.wire.errors import ProtocolError
from proxy.wire.frames import Decision
from proxy.wire.header import request_header, response_header_length
from proxy.wire.metadata import build_metadata_request, metadata_topics
from proxy.wire.primitives import Buffer
from proxy.wire.produce import PartitionProduced, TopicProduced, build_produce_response, parse_produce_response

log = structlog.get_logger()

_VERSION = 12


class Confirmation:
    """Expects the broker's answer to that question, after its answer to the Produce (`expected.Expected`).

    `answered` gets the body for the client; `lost` is called if the connection ends first.
    """

    __slots__ = ("_answered", "_body", "_ids", "_lost", "_request", "correlation_id")

    def __init__(
        self,
        request: Request,
        ids: Mapping[str, bytes | None],
        answered: Callable[[memoryview], None],
        lost: Callable[[], None],
    ) -> None:
        """`ids`: topic IDs by name, as they were while the lease ran."""
        self.correlation_id = request.correlation_id
        self._request = request
        self._ids = ids
        self._answered = answered
        self._lost = lost
        self._body: memoryview | None = None

    def question(self) -> list[Buffer]:
        """Return the request for the present IDs."""
        header = request_header(METADATA, _VERSION, self.correlation_id, self._request.client_id)
        return [header, build_metadata_request(_VERSION, list(self._ids))]

    def hold(self, body: memoryview) -> None:
        """Take the broker's answer to the Produce."""
        self._body = body

    def response_begins(self, size: int) -> Decision:
        """Hold the answer: it is compared."""
        return Decision.HOLD

    def response_held(self, frame: memoryview) -> None:
        """Compare the IDs."""
        if self._body is None:
            return  # the answer to the Produce was lost, and so is this one
        try:
            answer = frame[response_header_length(METADATA, _VERSION, frame) :]
            found = {topic.name: topic.topic_id for topic in metadata_topics(answer, _VERSION)}
            others = {name for name, topic_id in self._ids.items() if topic_id is None or found.get(name) != topic_id}
            body = self._with_errors(others, self._body) if others else self._body
        except ProtocolError as error:
            log.warning("broker_answer_unreadable", api="Metadata", api_version=_VERSION, reason=str(error))
            self.response_lost()
        else:
            self._answered(body)

    def response_part(self, part: memoryview, last: bool) -> None:
        """Never streamed."""
        raise AssertionError("a question's answer is held")

    def response_lost(self) -> None:
        """Take note that the broker is gone; the Produce was reported as lost before if its answer has not come."""
        if self._body is not None:
            self._lost()

    def _with_errors(self, others: set[str], body: memoryview) -> memoryview:
        log.warning(
            "recreated_topic_written",
            topics=sorted(others)[:NAMES_SHOWN],
            reason="the topics were deleted or recreated, and this proxy cannot know whether as diskless ones",
            effect="their producers get a retriable error",
            remedy="make the coordinator reachable for this proxy",
        )
        version = self._request.api_version
        topics = [
            TopicProduced(topic, [_rejected(one) for one in partitions] if topic in others else partitions)
            for topic, partitions in parse_produce_response(body, version)
        ]
        return memoryview(build_produce_response(version, topics))


def _rejected(answer: PartitionProduced) -> PartitionProduced:
    """Return a retriable error in the place of an acknowledgement, or of an error that comes from the other topic's
    configs."""
    if answer.error_code not in (NONE, MESSAGE_TOO_LARGE):
        return answer
    return PartitionProduced(answer.index, KAFKA_STORAGE_ERROR)
