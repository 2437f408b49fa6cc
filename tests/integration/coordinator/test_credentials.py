"""Passwords that rotate while proxies run."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
import redis as blocking_redis
from pydantic import ValidationError
from redis.credentials import CredentialProvider

from proxy import config
from proxy.coordinator.cluster import primaries
from proxy.coordinator.connect import StoreUnfit, connect, renew, store_call
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.shards import STORE_KEY
from tests.integration.coordinator.clusters import StoreCluster
from tests.integration.coordinator.conftest import Store

USER = "rotating"


class Tokens(CredentialProvider):
    """Gives the newest token."""

    newest: ClassVar[str] = ""

    def get_credentials(self) -> tuple[str, str]:
        return USER, self.newest


def allow(port: int, password: str) -> None:
    with blocking_redis.Redis(port=port) as client:
        client.execute_command("ACL", "SETUSER", USER, "reset", "on", f">{password}", "~*", "&*", "+@all")
        client.execute_command("CLIENT", "KILL", "USER", USER)


@pytest.mark.parametrize("way", ["password_file", "credentials"])
async def test_a_new_password_is_used_for_new_connections(store: Store, tmp_path: Path, way: str) -> None:
    file = tmp_path / "password"
    url = f"redis://{USER}@127.0.0.1:{store.port}/0" if way == "password_file" else store.url
    value = str(file) if way == "password_file" else f"{__name__}:{Tokens.__name__}"
    client = await connect(config.Redis(url=url, **{way: value}))
    for password in ("first", "second"):
        allow(store.port, password)
        file.write_text(password + "\n")
        Tokens.newest = password
        await renew(client)
        async with store_call(client, "reading"):
            await client.hget(STORE_KEY, "identity")
    file.unlink()
    Tokens.newest = "wrong"
    await renew(client)
    reason = "it rejects the proxy's credentials" if way == "credentials" else "redis.password_file: can't read"
    with pytest.raises(CoordinatorUnavailable, match=reason):
        async with store_call(client, "reading"):
            await client.hget(STORE_KEY, "identity")
    await client.aclose()


async def test_servers_of_a_cluster_and_the_reading_of_its_map_use_them_too(cluster: StoreCluster) -> None:
    Tokens.newest = "a token"
    for server in cluster.servers:
        allow(server.port, Tokens.newest)
        cluster.call(server, "ACL", "SETUSER", "default", "off")
    try:
        client = await connect(config.Redis(url=cluster.url, credentials=f"{__name__}:{Tokens.__name__}"))
        async with store_call(client, "reading"):
            assert len(await primaries(client)) == len(cluster.servers)
            await client.hget(STORE_KEY, "identity")
        await client.aclose()
    finally:
        for server in cluster.servers:
            with blocking_redis.Redis(port=server.port, username=USER, password=Tokens.newest) as admin:
                admin.execute_command("ACL", "SETUSER", "default", "on", "nopass")


async def test_a_class_that_cannot_be_used_is_named() -> None:
    with pytest.raises(StoreUnfit, match=r"redis\.credentials: can't make a proxy:Missing"):
        await connect(config.Redis(url="redis://a", credentials="proxy:Missing"))
    with pytest.raises(ValidationError, match="is not module:Class"):
        config.Redis(url="redis://a", credentials="proxy")
    with pytest.raises(ValidationError, match="give the password in one of"):
        config.Redis(url="redis://:word@a", password_file="/password")
