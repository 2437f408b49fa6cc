"""The proxies notice, with their own rights, changes that are made directly on the brokers."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic
from kio.index import load_request_schema
from typer.testing import CliRunner

from proxy.cli import app
from proxy.demo.security import ADMIN, SERVICE
from proxy.demo.stack import Stack
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from proxy.wire.cold import milliseconds, nested
from tests.support.acls import Acls
from tests.support.metrics import Metrics
from tests.support.secure_wire import proxied_wire
from tests.support.waiting import wait_for
from tests.support.wire import Wire

DELETE_TOPICS = 20


def settings(stack: Stack, *, direct: bool) -> dict[str, Any]:
    bootstrap = stack.direct_bootstrap if direct else stack.bootstrap("rack-a")
    return {"bootstrap.servers": bootstrap, **stack.security.client_settings(ADMIN)}


def diskless_topic(stack: Stack) -> str:
    name = f"past-{uuid.uuid4().hex[:6]}"
    client = AdminClient(settings(stack, direct=False))
    topic = NewTopic(name, 1, 2, config={"diskless.enable": "true"})
    client.create_topics([topic], request_timeout=30)[name].result(40)
    return name


def described(wire: Wire, topic: str) -> int:
    """Return the topic's error code in Metadata."""
    topic_type = nested(load_request_schema(METADATA, 9), "topics")
    answer = wire.ask(
        METADATA,
        9,
        topics=(topic_type(name=topic),),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return int(answer.topics[0].error_code)


def deleted(wire: Wire, topic: str) -> int:
    """Return the error code of deleting a topic by its name."""
    answer = wire.ask(DELETE_TOPICS, 5, topic_names=(topic,), timeout=milliseconds(20_000))
    return int(answer.responses[0].error_code)


def topics_command(stack: Stack, *arguments: str) -> Any:
    """Return the output of `diskless-proxy topics`, run as the proxies' principal."""
    config = str(stack.config_path("rack-a"))
    done = CliRunner().invoke(app, ["topics", *arguments, "--json", "--config", config])
    assert done.exit_code == 0, f"{done.stderr}\n{done.exception!r}"
    return json.loads(done.stdout)["topics"]


def test_a_topic_deleted_on_the_brokers_is_deleted(secure: Stack) -> None:
    kept, gone = diskless_topic(secure), diskless_topic(secure)
    client = AdminClient(settings(secure, direct=True))
    client.delete_topics([gone], request_timeout=30)[gone].result(40)
    wait_for(
        lambda: gone not in {row["topic"] for row in topics_command(secure, "list", "--diskless")},
        "the topic stayed in the registry",
    )
    listed = {row["topic"]: row["state"] for row in topics_command(secure, "list")}
    assert listed[kept] == "live"
    assert gone not in listed


@pytest.mark.parametrize(
    ("user", "answers"),
    [
        ("alice", {TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION}),
        (ADMIN, {NONE, UNKNOWN_TOPIC_OR_PARTITION}),
    ],
)
def test_a_topic_whose_shadow_is_missing_is_deleted_with_the_right_only(
    secure: Stack, user: str, answers: set[int]
) -> None:
    """Alice may only describe it; for her the controller reports a missing topic as unknown.

    The housekeeper deletes the topic some seconds after its placeholder; after that, clients get no topic.
    """
    diskless_topic(secure)  # another topic: if all placeholders were missing, the housekeeper would delete none
    topic, acls = diskless_topic(secure), Acls(secure)
    acls.allow("alice", AclOperation.DESCRIBE, topic)
    with proxied_wire(secure, user) as wire:
        wait_for(lambda: described(wire, topic) == NONE, "the right to describe the topic did not come")
        client = AdminClient(settings(secure, direct=True))
        client.delete_topics([topic], request_timeout=30)[topic].result(40)
        told_codes = []

        def is_settled() -> bool:
            """True once all brokers know of the deletion; they learn of it one after the other."""
            told_codes.append(deleted(wire, topic))
            names = {row["topic"] for row in topics_command(secure, "list", "--diskless")}
            return told_codes[-1] != UNKNOWN_TOPIC_OR_PARTITION or topic not in names

        wait_for(is_settled, "the brokers did not hear of the deletion")
        assert told_codes[-1] in answers
    acls.revoke("alice")


def test_stray_records_are_counted_once_the_shadow_may_be_read(secure: Stack) -> None:
    topic, acls = diskless_topic(secure), Acls(secure)
    acls.refuse(SERVICE, AclOperation.READ, topic)
    producer = Producer(settings(secure, direct=True))
    for _ in range(3):
        producer.produce(topic, b"value", partition=0)
        assert producer.flush(60) == 0  # brokers take no large batch for a placeholder topic
    proxies = [name for name in secure.processes if name.startswith("proxy-")]
    wait_for(
        lambda: any("shadow_not_readable" in secure.log_tail(name, 5_000) for name in proxies),
        "that the shadow can't be read is not said",
    )
    (described,) = topics_command(secure, "describe", topic)
    assert described["stray_records"] is None
    assert "error 29" in described["brokers_failure"]
    acls.refuse_no_longer(SERVICE, topic)
    wait_for(
        lambda: max(Metrics(secure, rack).value("stray_records", topic=topic) for rack in secure.proxies) == 3,
        "the records were not counted",
    )
    (described,) = topics_command(secure, "describe", topic)
    assert (described["stray_records"], described["brokers_failure"]) == (3, None)
