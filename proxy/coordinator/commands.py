"""A check that the store lets its user run every command that a script may call.

If a command of a script is rejected, the script's earlier writes stay, and its shard is fenced (`lua/fence.lua`). So
the commands are tried before the first use of a store, and again whenever another server may answer.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from pathlib import Path

from proxy import config
from proxy.coordinator import scripts
from proxy.coordinator.cluster import Cluster, Store, server_of
from proxy.coordinator.connect import StoreUnfit, store_call, store_name
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.shards import FLEET_PREFIX, REGISTRY_PREFIX, REPLICATION_PREFIX, shard_prefix

OPTIONAL_COMMANDS = frozenset({"INFO"})
"""Commands whose rejection the scripts expect."""
_UNDECLARED = "undeclared key"
"""Words of the servers that reject keys which a script does not declare; Redis and Valkey accept them."""
_CALL = re.compile(r"\bp?call\('([A-Z]+)'")


def commands_of_scripts() -> frozenset[str]:
    """Return the commands that the scripts call."""
    sources = (Path(__file__).parent / "lua").glob("*.lua")
    return frozenset(command for source in sources for command in _CALL.findall(source.read_text()))


async def rejected_commands(client: Store, shards: int) -> dict[str, str]:
    """Try every command on keys of every kind, at each server; return the store's reason by rejected command.

    Raises CoordinatorUnavailable if the store does not answer or takes no writes at all.
    """
    prefixes = [FLEET_PREFIX, REGISTRY_PREFIX, REPLICATION_PREFIX, shard_prefix(0)]
    if isinstance(client, Cluster):
        # One shard of each server.
        prefixes += {client.name_of(prefix): prefix for prefix in map(shard_prefix, range(1, shards))}.values()
    name = uuid.uuid4().hex
    rejected: dict[str, str] = {}
    for prefix in prefixes:
        reply: list[bytes] = await scripts.run(client, "try_commands", scripts.Call(prefix, (name,)))
        texts = [part.decode(errors="replace") for part in reply]
        rejected |= dict(zip(texts[::2], texts[1::2], strict=True))
    return rejected


async def command_problem(client: Store, settings: config.Redis) -> str | None:
    """Return why the store can't be used, naming the commands that it rejects; None if it rejects none.

    Raises CoordinatorUnavailable.
    """
    try:
        rejected = await rejected_commands(client, settings.shards)
    except CoordinatorUnavailable as error:
        if _UNDECLARED not in str(error.__cause__):
            raise
        rejected = {"": str(error.__cause__)}
    if not rejected:
        return None
    store, commands = store_name(settings), sorted(rejected)
    if undeclared := [reason for reason in rejected.values() if _UNDECLARED in reason]:
        return f"{store}: {undeclared_keys_problem(await _server_info(client), undeclared[0])}"
    return (
        f"{store}: the store rejects {', '.join(commands)} ({rejected[commands[0]]}), so a script could "
        "stop halfway; allow the user of redis.url to run all commands in docs/operations/redis.md, on "
        "keys and channels that begin with `diskless:`, and rename no command"
    )


def undeclared_keys_problem(server: Mapping[str, object], reason: str) -> str:
    """Return the problem of a server that rejects keys which a script does not declare. `server`: its INFO server."""
    name, remedy = "the server", "allow them in its settings, or use Redis or Valkey"
    if "dragonfly_version" in server:
        name = f"Dragonfly {server['dragonfly_version']}"
        remedy = "start it with --default_lua_flags=allow-undeclared-keys, or use Redis or Valkey"
    return f"{name} rejects keys that a script does not declare ({reason}); {remedy}"


async def _server_info(client: Store) -> Mapping[str, object]:
    try:
        async with store_call(client, "asking for the server's name"):
            return dict(await (await server_of(client, FLEET_PREFIX)).info("server"))
    except CoordinatorUnavailable:
        return {}


async def check_commands(client: Store, settings: config.Redis) -> None:
    """Reject a store that rejects a command. Raises StoreUnfit and CoordinatorUnavailable."""
    if problem := await command_problem(client, settings):
        raise StoreUnfit(problem)
