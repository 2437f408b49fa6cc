"""The stores of several servers that the demo starts, without brokers: they serve, and survive a killed primary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
import redis
from redis.cluster import RedisCluster

from proxy.demo.ports import ReservedPorts
from proxy.demo.valkeys import SERVICE, Store, StoreKind, store_of
from tests.support.waiting import wait_for

READY_S = 60.0


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[StoreKind], Store]]:
    reserved = ReservedPorts(None, 1)
    stores: list[Store] = []

    def start(kind: StoreKind) -> Store:
        (tmp_path / "logs").mkdir()
        store = store_of(kind, tmp_path, reserved.ports)
        stores.append(store)
        store.prepare()
        for process in store.processes:
            process.start()
        store.wait_ready(READY_S, Event())
        return store

    yield start
    for store in stores:
        for process in store.processes:
            process.kill()
    reserved.release()


def test_a_cluster_serves_all_slots_and_a_killed_primary_keeps_its_data(started: Callable) -> None:
    store = started("cluster")
    host, port = store.address.split(",")[1].split(":")
    with RedisCluster(host=host, port=int(port)) as client:
        for number in range(50):
            client.set(f"key-{number}", number)
            client.execute_command("SPUBLISH", f"channel-{number}", "text")
        store.processes[0].kill()
        store.processes[0].start()
        store.wait_ready(READY_S, Event())
    with RedisCluster(host=host, port=int(port)) as client:
        assert [int(client.get(f"key-{number}")) for number in range(50)] == list(range(50))


def test_sentinels_promote_the_replica_and_take_the_old_primary_back(started: Callable) -> None:
    store = started("sentinel")
    first, second = store.address.split(",")
    asked = store.url.split("//")[1].split(",")[0].split(":")
    sentinel = redis.Sentinel([(asked[0], int(asked[1]))], socket_timeout=2.0)

    def primary() -> str:
        with suppress(redis.RedisError):
            host, port = sentinel.discover_master(SERVICE)
            return f"{host}:{port}"
        return ""

    def is_replica() -> bool:
        with suppress(redis.RedisError), redis.Redis.from_url(f"redis://{first}") as old:
            return bool(old.info("replication")["role"] == "slave")
        return False

    assert primary() == first
    store.processes[0].kill()
    wait_for(lambda: primary() == second, "no replica is promoted", READY_S)
    store.processes[0].start()
    wait_for(is_replica, "the old primary is not a replica", READY_S)
    store.wait_ready(READY_S, Event())
