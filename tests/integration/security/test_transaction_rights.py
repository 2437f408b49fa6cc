"""The right to add partitions to transactions, as real brokers grant it: with it clients may use version 2."""

from __future__ import annotations

import asyncio

from confluent_kafka.admin import AclOperation

from proxy.brokers.cluster import Cluster
from proxy.demo.stack import Stack
from proxy.transactions.client_version import ClientVersion, may_add_partitions
from tests.integration.security.test_completion_rights import USER, settings_of
from tests.support.acls import CLUSTER, Acls

TIMEOUT_SECONDS = 60.0


async def test_version_2_needs_cluster_action(secure: Stack) -> None:
    acls, settings = Acls(secure), settings_of(secure)
    cluster = Cluster(settings)
    version = ClientVersion(settings.transactions, cluster.service.ask, asyncio.get_running_loop().time)
    try:
        await version.learn(2)
        assert version.is_1
        await asyncio.to_thread(acls.allow, USER, AclOperation.CLUSTER_ACTION, "kafka-cluster", CLUSTER)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not await may_add_partitions(cluster.service.ask):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        await version.learn(2)
        assert not version.is_1
    finally:
        cluster.service.close()
        await asyncio.to_thread(acls.revoke, USER)
