"""Replicas are added by a principal that may alter the cluster, and by no other."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic
from pydantic import SecretStr

from proxy.brokers.cluster import Cluster
from proxy.config import Settings, load_settings
from proxy.coordinator.connect import connect
from proxy.coordinator.shards import FLEET_PREFIX
from proxy.creation.replication.completion import Completion
from proxy.creation.replication.interface import Pending
from proxy.creation.replication.keeper import LEASE
from proxy.creation.replication.reassignments import ReassignmentsRefused, ask_replicas
from proxy.creation.replication.store import RedisPendingTopics
from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack
from tests.support.acls import CLUSTER, Acls

TIMEOUT_SECONDS = 60.0
USER = "alice"


def settings_of(stack: Stack) -> Settings:
    """Return the settings of a proxy whose principal is `USER`."""
    settings = load_settings(stack.config_path("rack-a"))
    assert settings.brokers.sasl is not None
    password = SecretStr(stack.security.users[USER])
    sasl = settings.brokers.sasl.model_copy(update={"username": USER, "password": password})
    return settings.model_copy(update={"brokers": settings.brokers.model_copy(update={"sasl": sasl})})


@asynccontextmanager
async def completing(stack: Stack, topic: str) -> AsyncIterator[Completion]:
    """Create a completion with a wish that the topic has two replicas."""
    settings = settings_of(stack)
    store, cluster = await connect(settings.redis), Cluster(settings)
    try:
        await cluster.refresh()
        pending = RedisPendingTopics(store, lambda: cluster.cluster_id)
        while not (found := (await ask_replicas(cluster.service, [topic])).topics):  # noqa: ASYNC110
            await asyncio.sleep(0.2)  # not all brokers know yet of the right to see it
        (known,) = found
        await pending.remember([Pending(topic, topic, 2, 1, 0, known.topic_id)])
        yield Completion(
            cluster,
            pending,
            owners=lambda: (),
            now_ms=lambda: time.time_ns() // 1_000_000,
            confirm_s=0.0,
            settle_s=0.0,
            partitions_at_once=10,
        )
        assert await pending.all() == ()
    finally:
        cluster.service.close()
        await store.aclose()


async def test_the_missing_right_to_alter_the_cluster_is_reported(secure: Stack) -> None:
    topic, acls = f"rights-{uuid.uuid4().hex[:6]}", Acls(secure)
    client = AdminClient({"bootstrap.servers": secure.direct_bootstrap, **secure.security.client_settings(ADMIN)})
    made = client.create_topics([NewTopic(topic, 2, replica_assignment=[[1], [2]])], request_timeout=30)
    await asyncio.to_thread(made[topic].result, 40)
    acls.allow(USER, AclOperation.DESCRIBE, topic)
    with redis.Redis.from_url(secure.redis.url) as store:
        # Keep all proxies of the stack away from the stored wishes.
        store.set(f"{FLEET_PREFIX}lease:{LEASE}", "the test", px=int(2 * TIMEOUT_SECONDS * 1000))
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS), completing(secure, topic) as completion:
                with pytest.raises(ReassignmentsRefused, match="lacks Describe on the cluster") as refused:
                    await completion.complete()
                assert refused.value.rights
                acls.allow(USER, AclOperation.DESCRIBE, "kafka-cluster", CLUSTER)
                while "lacks Alter on the cluster" not in await outcome(completion):  # noqa: ASYNC110 (nothing announces it)
                    await asyncio.sleep(0.2)
                acls.allow(USER, AclOperation.ALTER, "kafka-cluster", CLUSTER)
                while await outcome(completion) or completion.left.topics:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        finally:
            acls.revoke(USER)
            store.delete(f"{FLEET_PREFIX}lease:{LEASE}")
    known = client.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions
    assert [sorted(one.isrs) for one in known.values()] == [[1, 2], [1, 2]]


async def outcome(completion: Completion) -> str:
    """Run one round and return the error that stopped it."""
    try:
        await completion.complete()
    except ReassignmentsRefused as refused:
        return str(refused)
    return ""
