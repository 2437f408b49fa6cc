"""Run the scripts of `lua/` by their SHA-1, and load them where the store does not have them (any more)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Sequence
from enum import Enum, auto
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from proxy.coordinator.cluster import NOT_RUN, Cluster, Redirects, Store, pool_of, server_of
from proxy.coordinator.confirmation import Command, check_confirmed
from proxy.coordinator.connect import failure_of, store_call
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.shards import script_keys

_DIRECTORY = Path(__file__).parent / "lua"
_PREAMBLES = {
    "registry": ("marks.lua", "server.lua", "registry.lua", "fence_registry.lua"),
    "fleet": ("marks.lua", "server.lua"),
    "replication": (),
    "try": (),
    "adopt": ("server.lua", "shard.lua"),
    "snapshot": ("server.lua", "shard.lua", "fence.lua", "members.lua", "copied.lua"),
    "load": ("server.lua", "shard.lua", "fence.lua", "members.lua", "copied.lua"),
    "commit": ("server.lua", "shard.lua", "fence.lua", "members.lua"),
    "shard": ("server.lua", "shard.lua", "fence.lua", "members.lua", "transactions.lua", "rows.lua"),
}
_OF_A_VIEW = {"fence.lua": ("journal.lua", "copying.lua"), "fence_registry.lua": ("journal_registry.lua",)}
"""Files that take the place of others if the store is a view of a journal."""
_FUNCTIONS = {
    "commit": {
        "judge_producers": ("commit_producers.lua",),
        "read_transactions": ("transactions.lua", "commit_transactions.lua"),
        "read_retries": ("commit_retries.lua",),
    }
}
"""Functions that are made of files: what they need is created only if they are called."""
_EVEN_IF_MEMORY_IS_SHORT = "#!lua flags=allow-oom"
"""First line of scripts that apply a record of a journal: a record can't be skipped for want of memory."""

MAX_CALLS_PER_PIPELINE = 16
"""Calls that are sent together; the store runs them one after another before it turns to other clients."""

Argument = bytes | str | int


class ScriptError(Exception):
    """A script's own refusal; the text is its one word for it."""


class Refusal(NamedTuple):
    """Refusal of a script, which did nothing: a word, and more text."""

    text: str


class Script(NamedTuple):
    """The text of one operation, with its preamble, and the name that the store knows it by."""

    name: str
    text: str
    sha: str


class Call(NamedTuple):
    """One run of a script: the prefix of the keys that it uses, and its arguments."""

    prefix: str
    arguments: tuple[Argument, ...]


class Mode(Enum):
    """How a store relates to the order of its writes."""

    GUARDED = auto()
    """The store itself is the order; the guard notices its losses."""
    VIEW = auto()
    """A journal has the order; the script reads the store, or changes it in a way that no record is about."""
    APPLYING = auto()
    """The same; the script applies a record."""


@cache
def script(name: str, mode: Mode = Mode.GUARDED) -> Script:
    """Return the operation of `lua/<name>.lua` for a store of that mode."""
    kind = name.partition("_")[0]
    files = [*_PREAMBLES.get(kind, _PREAMBLES["shard"])]
    if mode is not Mode.GUARDED:
        files = [of_a_view for file in files for of_a_view in _OF_A_VIEW.get(file, (file,))]
    lines = [f"local SCRIPT = '{name}'", *((_DIRECTORY / file).read_text() for file in files)]
    operation = (_DIRECTORY / f"{name}.lua").read_text()
    for function, parts in _FUNCTIONS.get(kind, {}).items():
        lines += [f"local function {function}(...)", *((_DIRECTORY / file).read_text() for file in parts), "end"]
    lines += (
        ["local function operate()", operation, "end", "return finish(operate())"]
        if kind == "registry"
        else [operation]
    )
    if mode is Mode.APPLYING:
        lines.insert(0, _EVEN_IF_MEMORY_IS_SHORT)
    text = "\n".join(lines)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


async def run(client: Store, name: str, call: Call, *, expected_errors: Collection[str] = ()) -> Any:
    """One run. Raises CoordinatorUnavailable, and ScriptError where the script answers one of `expected_errors`."""
    try:
        (reply,) = await run_all(client, name, [call])
    except CoordinatorUnavailable as error:
        if str(error.__cause__) in expected_errors:
            raise ScriptError(str(error.__cause__)) from None
        raise
    return reply


async def run_all(
    client: Store,
    name: str,
    calls: Sequence[Call],
    *,
    refusals: Collection[str] = (),
    wait: Command = (),
    keep_failures: bool = False,
    mode: Mode = Mode.GUARDED,
) -> list[Any]:
    """Run the calls in their order; replies in that order, too. Raises CoordinatorUnavailable.

    When one fails, others may have taken effect. A script's own error that begins with a word of `refusals` is no
    failure: it is a Refusal among the replies. `wait`: the command of `confirmation.py` to send after the calls; if too
    few servers confirm them, they have taken effect all the same. `keep_failures`: the CoordinatorUnavailable of each
    call that failed is among the replies, and is not raised.
    """
    sending = _Sending(script(name, mode), refusals, wait, keep_failures)
    if isinstance(client, Cluster):
        replies = await _run_on_cluster(client, sending, calls)
    else:
        replies = await _run_at(client, sending, calls)
    if not keep_failures:
        for reply in replies:
            if isinstance(reply, CoordinatorUnavailable):
                raise reply
    return replies


class _Sending(NamedTuple):
    """A script, and how its replies are judged: see `run_all`."""

    script: Script
    refusals: Collection[str]
    wait: Command
    keep_failures: bool
    redirects: tuple[type[ResponseError], ...] = ()
    """Errors that are returned as they are: the server did not run the call."""


async def _run_on_cluster(cluster: Cluster, sending: _Sending, calls: Sequence[Call]) -> list[Any]:
    """Run calls at the servers that have their keys, at all servers at the same time; replies in the order of `calls`.

    A call that a server did not run is sent again. Failures are among the replies.
    """
    sending = sending._replace(redirects=NOT_RUN)
    replies: dict[int, Any] = {}
    left = list(range(len(calls)))
    redirects = Redirects(cluster)
    while True:
        places: dict[Redis, list[int]] = {}
        for place in left:
            try:
                server = await server_of(cluster, script_keys(calls[place].prefix)[0])
            except RedisError as error:
                replies[place] = await _failure(cluster, error, sending)
            else:
                places.setdefault(server, []).append(place)
        runs = [_run_at(server, sending, [calls[place] for place in some]) for server, some in places.items()]
        for some, answers in zip(places.values(), await asyncio.gather(*runs), strict=True):
            replies.update(zip(some, answers, strict=True))
        if any(isinstance(reply, CoordinatorUnavailable) for reply in replies.values()):
            cluster.suspect()
        not_run = {place: reply for place, reply in replies.items() if isinstance(reply, NOT_RUN)}
        if not not_run:
            break
        if not await redirects.again(list(not_run.values())):
            replies |= {place: await _failure(cluster, reply, sending) for place, reply in not_run.items()}
            break
        left = list(not_run)
    return [replies[place] for place in range(len(calls))]


async def _run_at(server: Redis, sending: _Sending, calls: Sequence[Call]) -> list[Any]:
    """Run calls at a server, in their order. Failures are among the replies; without `keep_failures`, nothing is sent
    after one."""
    replies: list[Any] = []
    script, refusals, wait, keep_failures, _ = sending
    for start in range(0, len(calls), MAX_CALLS_PER_PIPELINE):
        some = calls[start : start + MAX_CALLS_PER_PIPELINE]
        began_s = perf_counter()
        try:
            async with store_call(server, f"running {script.name}"):
                try:
                    judged = await _evaluate(server, script, some, refusals, wait)
                except NoScriptError:
                    # What ran of `some` did so completely, and every operation may be repeated.
                    await server.script_load(script.text)
                    judged = await _evaluate(server, script, some, refusals, wait)
        except CoordinatorUnavailable as failure:
            # Calls that come after a store that does not answer would wait as long.
            return [*replies, *[failure] * (len(calls) - len(replies))]
        finally:
            pool_of(server).times.observe(perf_counter() - began_s)
        for one in judged:
            failed = isinstance(one, ResponseError) and not isinstance(one, sending.redirects)
            replies.append(await _failure(server, one, sending) if failed else one)
            if failed and not keep_failures:
                return [*replies, *[replies[-1]] * (len(calls) - len(replies))]
    return replies


async def _failure(store: Store, error: RedisError, sending: _Sending) -> CoordinatorUnavailable:
    failure = await failure_of(store, error, f"running {sending.script.name}")
    failure.__cause__ = error
    return failure


async def _evaluate(
    client: Redis, script: Script, calls: Sequence[Call], refusals: Collection[str], wait: Command
) -> list[Any]:
    if len(calls) == 1 and not wait:
        try:
            return [await client.evalsha(script.sha, *_keys_and_arguments(calls[0]))]
        except ResponseError as error:
            return [_judged(error, refusals)]
    async with client.pipeline(transaction=False) as pipeline:
        for call in calls:
            pipeline.evalsha(script.sha, *_keys_and_arguments(call))
        if wait:
            pipeline.execute_command(*wait)
        replies = await pipeline.execute(raise_on_error=False)
    confirmed = replies.pop() if wait else None
    judged = [_judged(reply, refusals) if isinstance(reply, Exception) else reply for reply in replies]
    if isinstance(confirmed, Exception):
        raise confirmed
    if confirmed is not None:
        check_confirmed(wait, confirmed)
    return judged


def _keys_and_arguments(call: Call) -> tuple[Any, ...]:
    keys = script_keys(call.prefix)
    return len(keys), *keys, *call.arguments


def _judged(error: Exception, refusals: Collection[str]) -> Refusal | ResponseError:
    """Return a refusal, or another error of the script; raise an error that says nothing of this script alone."""
    if isinstance(error, NoScriptError) or not isinstance(error, ResponseError):
        raise error
    text = str(error)
    return Refusal(text) if text.partition(" ")[0] in refusals else error
