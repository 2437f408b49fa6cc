"""Values with a form of their own."""

from __future__ import annotations


def parse_node_ids(text: str) -> tuple[int, ...]:
    """`"1-3,7"` as `(1, 2, 3, 7)`. Raises ValueError, naming what can't be read."""
    nodes: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"{part.strip()!r} is neither a node ID nor a range such as 1-9")
        nodes.update(range(int(first), int(last or first) + 1))
    if not nodes:
        raise ValueError("names no node ID")
    return tuple(sorted(nodes))


def parse_address(text: str) -> tuple[str, int]:
    """`"host:port"` or `"[v6]:port"` as a pair. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return host.strip("[]"), int(port)
