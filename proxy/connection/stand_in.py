"""A client's broker connection when its own broker is down: another live broker stands in, for what any broker answers.

Diskless requests need a broker for the client's rights only, and any broker knows these. Clients find producer IDs,
coordinators and leaders at any broker, too, and it answers that it does not lead a classic partition. What only the
client's own broker can answer ends the connection, as the broker's end would have done: above all a Fetch of classic
partitions, which a follower would answer as if it were the leader. The client's requests lead back to its own broker
soon after that broker accepts connections again.

Behaviour: with a client that has authenticated (SASL) no other broker goes on; its next connection authenticates there.
When its own broker is back, its connection ends once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable
from proxy.protocol import api_keys

ANY_BROKER = frozenset(
    {
        api_keys.PRODUCE,
        api_keys.FETCH,
        api_keys.LIST_OFFSETS,
        api_keys.METADATA,
        api_keys.FIND_COORDINATOR,
        api_keys.API_VERSIONS,
        api_keys.DELETE_RECORDS,
        api_keys.INIT_PRODUCER_ID,
        api_keys.OFFSET_FOR_LEADER_EPOCH,
        api_keys.DESCRIBE_CLUSTER,
        api_keys.DESCRIBE_PRODUCERS,
        api_keys.DESCRIBE_TOPIC_PARTITIONS,
        api_keys.SASL_HANDSHAKE,
        api_keys.SASL_AUTHENTICATE,
    }
)
"""APIs that any broker answers; of Fetch, diskless partitions only."""
LEAST_PAUSE_S = 1.0
"""Between two times that a client's broker connection is made again: a broker may take connections and end them."""
_OWN_WITHIN_S = 1.0
"""Time in which the client's own broker must accept before another one is asked."""
ANSWERS_WITHIN_S = 0.5
"""Time in which a broker must answer what any broker can, before another one is asked."""
SASL_ANSWERS_WITHIN_S = 5.0
"""The same for a client that has authenticated: its connection ends, so a broker that is just slow must not be left."""
_STEPS = 10
"""Parts of that time. A loop that is busy for long loses one part, so that it is not taken for a broker that is."""


class Reached(NamedTuple):
    """A broker connection for a client."""

    upstream: BrokerConnection
    failure: str = ""
    """Why it leads to another broker than the client's; empty where it does not."""


async def reach(
    cluster: Cluster,
    node_id: int | None,
    make: Callable[[], BrokerConnection],
    *,
    others: bool,
    own: bool = True,
    last: int | None = None,
) -> Reached:
    """Connect to the client's own broker, or with `others` to another live one. Raises BrokerUnreachable.

    `node_id` is None for any broker; `make` makes a connection that is to be connected. Not `own`: the client's own
    broker has just taken a connection and ended it, or did not answer. A broker that is known as silent is not tried.
    """
    upstream = make()
    if node_id is None or not others:
        await _connect(cluster, node_id, upstream)
        return Reached(upstream)
    failure = f"broker {node_id} took a connection and did not serve it"
    cause: BaseException | None = None
    if own and node_id not in cluster.silent:
        try:
            await _within_steps(_connect(cluster, node_id, upstream))
            return Reached(upstream)
        except TimeoutError:
            failure = f"broker {node_id} did not accept a connection within {_OWN_WITHIN_S:g} s"
        except BrokerUnreachable as error:
            failure, cause = str(error), error.__cause__
        upstream.forsake()
    for other in sorted(
        cluster.view.brokers.keys() - {node_id},
        key=lambda node: (node == last or node in cluster.silent, cluster.distance(node)),
    ):
        upstream = make()
        try:
            await _connect(cluster, other, upstream)
        except BrokerUnreachable:
            continue
        return Reached(upstream, failure)
    raise BrokerUnreachable(failure) from cause


async def reach_again(
    cluster: Cluster, node_id: int | None, make: Callable[[], BrokerConnection], *, was_silent: bool
) -> BrokerConnection | None:
    """Connect to the client's own broker, for which another one stands in; None if it accepts no connection.

    A broker that was silent must answer a question, too: the machine accepts connections for a process that hangs.
    Only a broker that does not answer on a new connection is silent for all clients: another one may be slow.
    """
    upstream = make()
    try:
        await _within_steps(_connect(cluster, node_id, upstream))
        if node_id is not None and (was_silent or node_id in cluster.silent):
            try:
                await _within_steps(upstream.ask(api_keys.API_VERSIONS, 0, b"", None))
            except TimeoutError:
                cluster.silent.note(node_id)
                raise
            cluster.silent.clear(node_id)
    except (BrokerUnreachable, TimeoutError):
        upstream.forsake()
        return None
    except asyncio.CancelledError:
        upstream.forsake()
        raise
    return upstream


async def _within_steps(work: Coroutine[Any, Any, Any]) -> Any:
    """Wait for the work for `_OWN_WITHIN_S`, in steps. Raises TimeoutError, and what the work raises."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await wait_in_steps(task, _OWN_WITHIN_S)
        if task.done():
            return task.result()
        raise TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif not task.cancelled():
            task.exception()  # Taken also if the caller is cancelled: otherwise asyncio logs that nobody took it.


async def wait_in_steps(task: asyncio.Task[Any], within_s: float) -> None:
    """Wait until the task is done, or until that time is over."""
    for _ in range(_STEPS):
        await asyncio.wait({task}, timeout=within_s / _STEPS)
        if task.done():
            return


async def _connect(cluster: Cluster, node_id: int | None, upstream: BrokerConnection) -> None:
    """Raises BrokerUnreachable, also where the broker ended the connection before it could be used."""
    await cluster.connect(node_id, upstream)
    if upstream.lost:
        raise BrokerUnreachable("the broker took the connection and ended it")
