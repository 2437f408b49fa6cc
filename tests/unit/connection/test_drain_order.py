"""The order in which a drain closes connections: a client loses them one broker after the other."""

from __future__ import annotations

import asyncio

from proxy.config import Limits
from proxy.connection.connections import Connections
from proxy.telemetry.stats import Stats
from tests.unit.sessions import session


class Client:
    """A connection that has nothing to answer."""

    def __init__(self, connections, node_id, closed):
        self.connections = connections
        self.session = session(node_id=node_id)
        self.host = self.session.host
        self.closed = closed

    def drain(self):
        if self in self.connections._open:
            self.closed.append((self.session.node_id, asyncio.get_running_loop().time()))
            self.connections.forget(self)


async def drained(node_ids, **limits):
    connections, closed = Connections(Limits(**limits), Stats()), []
    for node_id in node_ids:
        assert connections.admit(Client(connections, node_id, closed))
    await connections.drain()
    assert not len(connections)
    return closed


async def test_broker_by_broker_and_the_bootstrap_port_last():
    closed = await drained([None, 2, 1, 2, None, 1], drain_pause_ms=1)
    assert [node_id for node_id, _ in closed] == [1, 1, 2, 2, None, None]


async def test_a_pause_between_one_broker_and_the_next():
    closed = dict(await drained([1, 2, 3], drain_pause_ms=20))
    assert closed[2] - closed[1] >= 0.02
    assert closed[3] - closed[2] >= 0.02


async def test_nobody_there_is_drained():
    assert await drained([]) == []
