"""KIP-409 with ACLs: topics created while brokers are missing need the client's own rights."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack
from tests.support.acls import Acls
from tests.support.topics import CLASSIC, DISKLESS

NONE, INVALID_REPLICATION_FACTOR, TOPIC_AUTHORIZATION_FAILED = 0, 38, 29
SPREAD_SECONDS = 30


def create(stack: Stack, user: str, name: str, kind: str, *, direct: bool = False) -> int:
    """Return the error code of a creation with more replicas than brokers."""
    bootstrap = stack.direct_bootstrap if direct else stack.bootstrap("rack-a")
    client = AdminClient({"bootstrap.servers": bootstrap, **stack.security.client_settings(user)})
    config = {"diskless.enable": "true"} if kind == DISKLESS and not direct else {}
    made: Any = client.create_topics([NewTopic(name, 1, 3, config=config)], request_timeout=30)[name]
    try:
        made.result(40)
    except KafkaException as error:
        return int(error.args[0].code())
    return NONE


@pytest.mark.parametrize("kind", [CLASSIC, DISKLESS])
def test_a_client_that_may_not_create_topics_may_not_do_so_with_fewer_replicas(secure: Stack, kind: str) -> None:
    name, acls = f"short-{kind}-{uuid.uuid4().hex[:6]}", Acls(secure)
    assert create(secure, "bob", name, kind, direct=True) == TOPIC_AUTHORIZATION_FAILED
    assert create(secure, "bob", name, kind) == TOPIC_AUTHORIZATION_FAILED
    admin = AdminClient({"bootstrap.servers": secure.direct_bootstrap, **secure.security.client_settings(ADMIN)})
    assert name not in admin.list_topics(timeout=30).topics
    acls.allow("bob", AclOperation.CREATE, name)
    try:
        deadline = time.monotonic() + SPREAD_SECONDS
        while (creation_code := create(secure, "bob", name, kind, direct=True)) == TOPIC_AUTHORIZATION_FAILED:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert creation_code == INVALID_REPLICATION_FACTOR
        while (creation_code := create(secure, "bob", name, kind)) == TOPIC_AUTHORIZATION_FAILED:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert creation_code == NONE
        while name not in (known := admin.list_topics(timeout=30).topics):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert {len(one.replicas) for one in known[name].partitions.values()} == {2}
    finally:
        acls.revoke("bob")
        owner = AdminClient({"bootstrap.servers": secure.bootstrap("rack-a"), **secure.security.client_settings(ADMIN)})
        owner.delete_topics([name], request_timeout=30)[name].result(40)
