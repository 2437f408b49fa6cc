"""`/api/connections`: the open connections of clients, those whose records cross racks first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from proxy.admin.api.question import LONGEST_CONTAINS, ProcessAnswer, Question, shown
from proxy.routing.racks import Racks

if TYPE_CHECKING:
    from proxy.connection.open_connection import OpenConnection

_PER_STEP = 500
"""Connections to look at before other tasks of the event loop get a turn."""


async def collect(
    connections: Iterable[OpenConnection], racks: Racks, question: Question
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many connections match, and the first `limit` of them."""
    wanted = question.contains.lower()
    count = 0
    first: list[tuple[tuple[int, int], int, OpenConnection]] = []
    for number, connection in enumerate(connections):
        if number and number % _PER_STEP == 0:
            await asyncio.sleep(0)
        if wanted and not _matches(racks, connection, wanted):
            continue
        count += 1
        entry = (
            (connection.session.crossed_bytes, connection.sent_bytes + connection.received_bytes),
            number,
            connection,
        )
        if len(first) < question.limit:
            heapq.heappush(first, entry)
        elif first and entry > first[0]:
            heapq.heapreplace(first, entry)
    return count, [_row(racks, connection) for *_, connection in sorted(first, reverse=True)]


def document(answers: Iterable[ProcessAnswer], question: Question) -> dict[str, Any]:
    """Return the answer of `GET /api/connections`."""
    total, rows = 0, list[dict[str, Any]]()
    for one in answers:
        count, first = one.value
        total += count
        rows += [row | {"worker": one.worker} for row in first]
    rows.sort(key=lambda row: (row["crossed_bytes"], row["sent_bytes"] + row["received_bytes"]), reverse=True)
    return {"total": total, "connections": rows[: question.limit]}


def _matches(racks: Racks, connection: OpenConnection, wanted: str) -> bool:
    names = (
        connection.session.host,
        (connection.session.client_id or "")[:LONGEST_CONTAINS],
        connection.session.software,
        connection.session.user,
        racks.of(connection.session, connection.session.client_id),
        _listener(connection),
    )
    return any(wanted in name.lower() for name in names)


def _row(racks: Racks, connection: OpenConnection) -> dict[str, Any]:
    client_id = connection.session.client_id
    return {
        "client": connection.address,
        "client_id": shown(client_id),
        "software": shown(connection.session.software) or None,
        "rack": shown(racks.of(connection.session, client_id)),
        "rack_from": racks.source_of(connection.session, client_id),
        "listener": _listener(connection),
        "principal": shown(connection.session.user) or None,
        "opened_ms": connection.opened_ms,
        "requests": connection.requests,
        "received_bytes": connection.received_bytes,
        "sent_bytes": connection.sent_bytes,
        "crossed_bytes": connection.session.crossed_bytes,
    }


def _listener(connection: OpenConnection) -> str:
    node = "bootstrap" if connection.session.node_id is None else f"broker {connection.session.node_id}"
    return f"{connection.session.listeners.name} {node}"
