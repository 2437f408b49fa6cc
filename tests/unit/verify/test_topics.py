"""A topic of a run is created although an attempt timed out, whatever became of that attempt."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from proxy.verify import topics


class Admin:
    """Answers attempts to create a topic with these errors, one after another; None is success."""

    def __init__(self, *errors: int | None) -> None:
        self.errors = list(errors)

    def create_topics(self, new: list[NewTopic], request_timeout: float) -> dict[str, Any]:
        answer: Future[None] = Future()
        if (error := self.errors.pop(0)) is None:
            answer.set_result(None)
        else:
            answer.set_exception(KafkaException(KafkaError(error)))
        return {new[0].topic: answer}


TIMED_OUT, EXISTS, INVALID = KafkaError.REQUEST_TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_CONFIG


def create(admin: Any) -> None:
    topics._create_topic(admin, NewTopic("a", 1, 1))


@pytest.mark.parametrize("errors", [(None,), (TIMED_OUT, None), (TIMED_OUT, TIMED_OUT, None), (TIMED_OUT, EXISTS)])
def test_it_is_created(monkeypatch: pytest.MonkeyPatch, errors: tuple[int | None, ...]) -> None:
    monkeypatch.setattr(topics, "POLL_SECONDS", 0.0)
    admin = Admin(*errors)
    create(admin)
    assert not admin.errors


@pytest.mark.parametrize("errors", [(EXISTS,), (INVALID,), (TIMED_OUT, INVALID)])
def test_other_errors_are_reported(monkeypatch: pytest.MonkeyPatch, errors: tuple[int, ...]) -> None:
    monkeypatch.setattr(topics, "POLL_SECONDS", 0.0)
    with pytest.raises(KafkaException):
        create(Admin(*errors))


def test_it_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(topics, "ASK_SECONDS", -1.0)
    with pytest.raises(KafkaException):
        create(Admin(TIMED_OUT))
