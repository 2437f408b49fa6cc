"""The servers of a real store: their slots, shards and work, on the command line and for metrics."""

from __future__ import annotations

import json
import os
from pathlib import Path

from typer.testing import CliRunner

from proxy import config
from proxy.cli import app
from proxy.coordinator.cluster import Cluster, call_times, number_of_primaries
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import PartitionRun
from proxy.coordinator.nodes import Nodes, look_at_nodes
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import NEIGHBOURS
from tests.integration.coordinator.clusters import PRIMARIES, SLOTS, StoreCluster
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.contract import TOPIC, plain

LOGS = [group * NEIGHBOURS for group in range(3)]
"""One partition in each shard."""


async def commit(coordinator: RedisCoordinator) -> None:
    await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, log, 1, (plain(2),)) for log in LOGS])


async def test_each_server_of_a_cluster_has_its_slots_shards_and_work(
    cluster: StoreCluster, cluster_client: Cluster, make_on_cluster
) -> None:
    settings = config.Redis(url=cluster.url, shards=3)
    coordinator = make_on_cluster()
    await coordinator.create_logs(TOPIC, LOGS)
    await commit(coordinator)  # each server gets the script
    first = await look_at_nodes(cluster_client, settings)
    for _ in range(5):
        await commit(coordinator)
    second = await look_at_nodes(cluster_client, settings)
    assert [sum(look.slots or 0 for look in looks) for looks in (first, second)] == [SLOTS, SLOTS]
    assert sorted(shard for look in second for shard in look.shards) == [0, 1, 2]
    for before, after in zip(first, second, strict=True):
        assert after.node == before.node
        assert (after.script_runs or 0) - (before.script_runs or 0) == 5 * len(after.shards)
        assert (after.cpu_s or 0) >= (before.cpu_s or 0) > 0
        assert (after.memory_bytes or 0) > 100_000
        assert (after.replicas, after.lag_bytes, after.problem) == (0, None, "")
    called = call_times(cluster_client)
    assert set(called) <= {look.node for look in second}
    assert sum(sum(times.counts) for times in called.values()) >= 5 * 3
    assert all(times.total_s > 0 for times in called.values() if any(times.counts))
    assert number_of_primaries(cluster_client) == PRIMARIES


async def test_a_server_that_is_down_is_named(tmp_path: Path) -> None:
    with StoreCluster(tmp_path / "cluster") as own:
        settings = config.Redis(url=own.url, shards=3)
        client = await connect(settings)
        try:
            assert len(await look_at_nodes(client, settings)) == PRIMARIES
            own.servers[1].kill()
            looks = {look.node: look for look in await look_at_nodes(client, settings)}
        finally:
            await client.aclose()
    down = looks.pop(f"127.0.0.1:{own.servers[1].port}")
    assert "check that the store runs" in down.problem
    assert down.slots
    assert not any(look.problem for look in looks.values())


async def test_a_user_with_little_of_info_gets_the_rest(cluster: StoreCluster) -> None:
    for server in cluster.servers:
        rights = ["~diskless:*", "&diskless:*", "+@all", "-@dangerous", "+info|memory"]
        cluster.call(server, "ACL", "SETUSER", "little", "reset", "on", ">word", *rights)
    settings = config.Redis(url=cluster.url.replace("://", "://little:word@"), shards=3)
    client = await connect(settings)
    try:
        looks = await look_at_nodes(client, settings)
    finally:
        await client.aclose()
    for look in looks:
        assert (look.memory_bytes or 0) > 100_000
        assert (look.script_runs, look.cpu_s, look.replicas) == (None, None, None)


async def test_the_servers_are_looked_at_when_somebody_asks_and_not_twice_at_once(client, settings) -> None:
    nodes = Nodes(client, settings)
    (first,) = await nodes.seen()
    assert first.cpu_share is not None
    (again,) = await nodes.seen()
    assert again is first
    assert (first.look.slots, first.look.shards) == (None, (0, 1, 2))


def test_the_command_shows_them(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "proxy.yaml"
    file.write_text(
        f"rack: a\nbrokers: {{bootstrap: ['127.0.0.1:1']}}\nredis: {{url: '{store.url}'}}\n"
        f"storage: {{url: '{tmp_path.as_uri()}'}}\n"
    )
    done = CliRunner().invoke(app, ["coordinator", "nodes", "--config", str(file), "--json"])
    assert done.exit_code == 0, done.output
    (node,) = json.loads(done.output)["nodes"]
    assert (node["node"], node["slots"], node["replicas"]) == (f"127.0.0.1:{store.port}", None, 0)
    assert node["shards"] == list(range(16))
    assert node["memory_bytes"] > 100_000
    shown = CliRunner().invoke(app, ["coordinator", "nodes", "--config", str(file)]).output
    assert "0-15" in shown
    assert "no replica" in shown
