"""Run the scripts of `lua/` by their SHA-1, and load them where the store does not have them (any more)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from proxy.coordinator.connect import store_call
from proxy.coordinator.interface import CoordinatorUnavailable

_DIRECTORY = Path(__file__).parent / "lua"
_PREAMBLES = {"registry": "registry.lua", "fleet": None, "shard": "shard.lua"}

MAX_CALLS_PER_PIPELINE = 16
"""Calls that are sent together; the store runs them one after another before it turns to other clients."""

Argument = bytes | str | int


class ScriptError(Exception):
    """A script's own refusal; the text is its one word for it."""


class Script(NamedTuple):
    """The text of one operation, with its preamble, and the name that the store knows it by."""

    name: str
    text: str
    sha: str


class Call(NamedTuple):
    """One run of a script: the prefix of the keys that it uses, and its arguments."""

    prefix: str
    arguments: tuple[Argument, ...]


@cache
def script(name: str) -> Script:
    """The operation of `lua/<name>.lua`."""
    preamble = _PREAMBLES.get(name.partition("_")[0], _PREAMBLES["shard"])
    files = [preamble, f"{name}.lua"] if preamble else [f"{name}.lua"]
    text = "\n".join((_DIRECTORY / file).read_text() for file in files)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


async def run(client: Redis, name: str, call: Call, *, expected_errors: Collection[str] = ()) -> Any:
    """One run. Raises CoordinatorUnavailable, and ScriptError where the script answers one of `expected_errors`."""
    try:
        (reply,) = await run_all(client, name, [call])
    except CoordinatorUnavailable as error:
        if str(error.__cause__) in expected_errors:
            raise ScriptError(str(error.__cause__)) from None
        raise
    return reply


async def run_all(client: Redis, name: str, calls: Sequence[Call]) -> list[Any]:
    """Run the calls in their order; replies in that order, too. Raises CoordinatorUnavailable.

    When one fails, others may have taken effect.
    """
    replies: list[Any] = []
    for start in range(0, len(calls), MAX_CALLS_PER_PIPELINE):
        some = calls[start : start + MAX_CALLS_PER_PIPELINE]
        async with store_call(client, f"running {name}"):
            try:
                replies += await _evaluate(client, script(name), some)
            except NoScriptError:
                # What ran of `some` did so completely, and every operation may be repeated.
                await client.script_load(script(name).text)
                replies += await _evaluate(client, script(name), some)
    return replies


async def _evaluate(client: Redis, script: Script, calls: Sequence[Call]) -> list[Any]:
    if len(calls) == 1:
        return [await client.evalsha(script.sha, 1, calls[0].prefix, *cast(tuple[str, ...], calls[0].arguments))]
    async with client.pipeline(transaction=False) as pipeline:
        for call in calls:
            pipeline.evalsha(script.sha, 1, call.prefix, *cast(tuple[str, ...], call.arguments))
        replies = await pipeline.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
