"""`/api/nodes`: the servers of the coordinator's store, and how much each of them has to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from proxy.admin.api.question import ProcessAnswer, Question, shown
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.nodes import PAUSE_S, Node, Nodes

_LONGEST_LOOK_S = PAUSE_S + 1.0


class NodesView(NamedTuple):
    """The servers as one process sees them."""

    nodes: tuple[Node, ...]
    problem: str
    """Why there are none."""


async def collect(nodes: Nodes) -> NodesView:
    """Return the servers; none while the store does not answer."""
    try:
        async with asyncio.timeout(_LONGEST_LOOK_S):
            return NodesView(tuple(await nodes.seen()), "")
    except TimeoutError:
        return NodesView((), "the coordinator's store does not answer")
    except CoordinatorUnavailable as error:
        return NodesView((), str(error))


def document(answers: Iterable[ProcessAnswer], question: Question) -> dict[str, Any]:
    """Return the answer of `GET /api/nodes`: the view of the first process that sees any server."""
    views: list[NodesView] = [one.value for one in answers]
    view = next((view for view in views if view.nodes), views[0] if views else NodesView((), ""))
    rows = [row(one) for one in view.nodes if question.contains.lower() in one.look.node.lower()]
    return {"nodes": rows[: question.limit], "problem": shown(view.problem, 1_000) or None}


def row(node: Node) -> dict[str, Any]:
    """Return the row of one server; a field that the server does not report is null."""
    look = node.look
    return {
        "node": shown(look.node),
        "slots": look.slots,
        "shards": list(look.shards),
        "runs_per_second": node.runs_per_second,
        "cpu_share": node.cpu_share,
        "memory_bytes": look.memory_bytes,
        "memory_limit_bytes": look.memory_limit_bytes,
        "replicas": look.replicas,
        "lag_bytes": look.lag_bytes,
        "problem": shown(look.problem, 1_000) or None,
    }
