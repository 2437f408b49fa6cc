"""What the proxies see, with their own rights, of changes on the brokers that go past them."""

from __future__ import annotations

import json
import uuid
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic
from typer.testing import CliRunner

from proxy.cli import app
from proxy.demo.security import ADMIN, SERVICE
from proxy.demo.stack import Stack
from tests.support.acls import Acls
from tests.support.metrics import Metrics
from tests.support.waiting import wait_for


def settings(stack: Stack, *, direct: bool) -> dict[str, Any]:
    bootstrap = stack.direct_bootstrap if direct else stack.bootstrap("rack-a")
    return {"bootstrap.servers": bootstrap, **stack.security.client_settings(ADMIN)}


def diskless_topic(stack: Stack) -> str:
    name = f"past-{uuid.uuid4().hex[:6]}"
    client = AdminClient(settings(stack, direct=False))
    topic = NewTopic(name, 1, 2, config={"diskless.enable": "true"})
    client.create_topics([topic], request_timeout=30)[name].result(40)
    return name


def told(stack: Stack, *arguments: str) -> Any:
    """What `diskless-proxy topics` tells, as the proxies' principal."""
    config = str(stack.config_path("rack-a"))
    done = CliRunner().invoke(app, ["topics", *arguments, "--json", "--config", config])
    assert done.exit_code == 0, f"{done.stderr}\n{done.exception!r}"
    return json.loads(done.stdout)["topics"]


def test_a_topic_deleted_on_the_brokers_goes(secure: Stack) -> None:
    kept, gone = diskless_topic(secure), diskless_topic(secure)
    client = AdminClient(settings(secure, direct=True))
    client.delete_topics([gone], request_timeout=30)[gone].result(40)
    wait_for(
        lambda: gone not in {row["topic"] for row in told(secure, "list", "--diskless")},
        "the topic stayed in the registry",
    )
    listed = {row["topic"]: row["state"] for row in told(secure, "list")}
    assert listed[kept] == "live"
    assert gone not in listed


def test_stray_records_are_counted_once_the_shadow_may_be_read(secure: Stack) -> None:
    topic, acls = diskless_topic(secure), Acls(secure)
    acls.refuse(SERVICE, AclOperation.READ, topic)
    producer = Producer(settings(secure, direct=True))
    for _ in range(3):
        producer.produce(topic, b"value", partition=0)
    assert producer.flush(60) == 0
    proxies = [name for name in secure.processes if name.startswith("proxy-")]
    wait_for(
        lambda: any("shadow_not_readable" in secure.log_tail(name, 5_000) for name in proxies),
        "that the shadow can't be read is not said",
    )
    (described,) = told(secure, "describe", topic)
    assert described["stray_records"] is None
    assert "error 29" in described["brokers_failure"]
    acls.refuse_no_longer(SERVICE, topic)
    wait_for(
        lambda: max(Metrics(secure, rack).value("stray_records", topic=topic) for rack in secure.proxies) == 3,
        "the records were not counted",
    )
    (described,) = told(secure, "describe", topic)
    assert (described["stray_records"], described["brokers_failure"]) == (3, None)
