"""A producer's errors are noted however the client library raises them."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from proxy.verify.sender import Sender


def sender(poll: Any, errors: list[KafkaError]) -> Any:
    one: Any = object.__new__(Sender)
    one._acked, one._failed = defaultdict(list), defaultdict(list)
    one._errors = errors.append
    one.librdkafka = SimpleNamespace(poll=poll)
    return one


def test_an_error_that_was_raised_before_an_answer_was_taken_is_noted() -> None:
    """The library calls the next callback with the error set, which Python reports as a SystemError."""
    fatal = KafkaError(KafkaError._FATAL)

    def poll(_: float) -> None:
        raise SystemError("a result with an exception set") from KafkaException(fatal)

    errors: list[KafkaError] = []
    sender(poll, errors).poll(0.1)
    assert errors == [fatal]


def test_an_error_of_our_own_ends_the_run() -> None:
    def poll(_: float) -> None:
        raise SystemError("a result with an exception set") from AssertionError("no topic")

    with pytest.raises(SystemError):
        sender(poll, []).poll(0.1)
