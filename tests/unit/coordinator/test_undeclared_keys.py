"""A server that rejects keys which a script does not declare is rejected by name, with its flag.

No such server is among the test programs, so these are answers as Dragonfly gives them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing

import pytest

from proxy import config
from proxy.coordinator.commands import check_commands, undeclared_keys_problem
from proxy.coordinator.connect import StoreUnfit, connect
from tests.support.ports import free_port

REASON = "script tried accessing undeclared key, key: diskless:{0}:check-1:hash"
INFO = "# Server\r\nredis_version:7.4.0\r\ndragonfly_version:df-v1.31.0\r\n"
Start = Callable[[bytes], Awaitable[config.Redis]]


async def _read(reader: asyncio.StreamReader) -> list[bytes]:
    parts = int((await reader.readline())[1:])
    return [(await reader.readexactly(int((await reader.readline())[1:]) + 2))[:-2] for _ in range(parts)]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a server that answers each run of a script with the given bytes, and INFO as Dragonfly does."""
    servers = []

    async def start(answer: bytes) -> config.Redis:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with closing(writer):
                while not reader.at_eof():
                    try:
                        name, *_ = await _read(reader)
                    except (asyncio.IncompleteReadError, ValueError):
                        return
                    info = f"${len(INFO)}\r\n{INFO}\r\n".encode()
                    writer.write({b"EVALSHA": answer, b"INFO": info}.get(name.upper(), b"+OK\r\n"))

        port = free_port()
        servers.append(await asyncio.start_server(serve, "127.0.0.1", port))
        return config.Redis(url=f"redis://127.0.0.1:{port}/0")

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    "answer",
    [
        f"-ERR Error running script: {REASON}\r\n",
        f"*4\r\n$3\r\nDEL\r\n${len(REASON) + 4}\r\nERR {REASON}\r\n$3\r\nSET\r\n${len(REASON) + 4}\r\nERR {REASON}\r\n",
    ],
    ids=["the script fails", "the script reports its commands"],
)
async def test_dragonfly_without_its_flag_is_named(start: Start, answer: str) -> None:
    settings = await start(answer.encode())
    client = await connect(settings)
    try:
        with pytest.raises(StoreUnfit) as rejected:
            await check_commands(client, settings)
    finally:
        await client.aclose()
    assert "Dragonfly df-v1.31.0 rejects keys that a script does not declare" in str(rejected.value)
    assert "--default_lua_flags=allow-undeclared-keys" in str(rejected.value)


def test_an_unknown_server_gets_no_flag_of_another_one() -> None:
    text = undeclared_keys_problem({"redis_version": "7.2.4"}, REASON)
    assert text.startswith("the server rejects keys that a script does not declare (script tried")
    assert "default_lua_flags" not in text
