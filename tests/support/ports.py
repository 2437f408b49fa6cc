"""Ports for servers that tests start."""

from __future__ import annotations

import os
import random
import socket

from proxy.demo.ports import HOST

FIRST, PER_WORKER, WORKERS = 12_000, 1_000, 8
"""Each of the parallel workers has ports of its own, below those of stacks and of outgoing connections."""
_given: set[int] = set()


def free_port(in_a_row: int = 1) -> int:
    """Return a port that nobody uses now, and that the system does not give to outgoing connections; with more of them
    `in_a_row`, the first.

    A server may bind it much later: this process gives no port out twice, and parallel workers share none.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    first = FIRST + worker * PER_WORKER
    while True:
        start = random.randrange(first, first + PER_WORKER - in_a_row + 1)
        row = range(start, start + in_a_row)
        if _given.isdisjoint(row) and all(map(_is_free, row)):
            _given.update(row)
            return start


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
