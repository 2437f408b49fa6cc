"""The meaning of Kafka's error codes for an append, and the errors of the journal itself."""

from __future__ import annotations

from enum import Enum

from kio.schema.errors import ErrorCode

from proxy.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_REQUEST,
    INVALID_REQUIRED_ACKS,
    INVALID_TIMESTAMP,
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    POLICY_VIOLATION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
    UNSUPPORTED_VERSION,
)
from proxy.wire.produce import PartitionProduced


class JournalUnfit(Exception):
    """The journal's topic can't be used; one line that names the cause and the remedy."""


class TooFewBrokers(Exception):
    """The journal's topic can't be created before more brokers have joined, or fewer replicas are required."""


class Outcome(Enum):
    """The outcome of an append."""

    APPENDED = "appended"
    MOVED = "moved"
    """Certainly not appended: another broker leads, or will lead soon."""
    REJECTED = "rejected"
    """Certainly not appended, and another attempt would fail, too."""
    UNKNOWN = "unknown"
    """Perhaps appended."""


_MOVED = frozenset({UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID})
_REJECTED = frozenset(
    {
        CORRUPT_MESSAGE,
        MESSAGE_TOO_LARGE,
        INVALID_TOPIC_EXCEPTION,
        NOT_ENOUGH_REPLICAS,
        INVALID_REQUIRED_ACKS,
        TOPIC_AUTHORIZATION_FAILED,
        CLUSTER_AUTHORIZATION_FAILED,
        INVALID_TIMESTAMP,
        UNSUPPORTED_VERSION,
        INVALID_REQUEST,
        POLICY_VIOLATION,
        UNSUPPORTED_COMPRESSION_TYPE,
        INVALID_RECORD,
    }
)
"""Brokers find these before they append (`ReplicaManager.appendToLocalLog`)."""
_REMEDIES = {
    MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic to journal.max_append_bytes",
    NOT_ENOUGH_REPLICAS: "start the brokers that are down",
    TOPIC_AUTHORIZATION_FAILED: "give the proxy's principal the right to write to the topic",
    UNKNOWN_TOPIC_OR_PARTITION: "the topic was deleted, or the brokers do not know it yet",
    UNKNOWN_TOPIC_ID: "the topic was deleted, or the brokers do not know it yet",
}


def outcome_of(answer: PartitionProduced) -> Outcome:
    """Return the outcome that an answer to a Produce with acks=all stands for.

    A leader that loses its office while followers copy the records answers NOT_LEADER_OR_FOLLOWER as well
    (`DelayedProduce.tryComplete`). The records may be in the new leader's log then. Such an answer has the base offset
    of the records, which an append that did not take place never has.
    """
    if answer.error_code == NONE:
        return Outcome.APPENDED
    if answer.base_offset >= 0:
        return Outcome.UNKNOWN
    if answer.error_code in _MOVED:
        return Outcome.MOVED
    return Outcome.REJECTED if answer.error_code in _REJECTED else Outcome.UNKNOWN


def described(error_code: int) -> str:
    """Return the name of an error, and the remedy if there is one."""
    try:
        name = ErrorCode(error_code).name.upper()
    except ValueError:
        name = f"error {error_code}"
    remedy = _REMEDIES.get(error_code)
    return f"{name} ({remedy})" if remedy else name
