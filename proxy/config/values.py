"""Values with a format of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIGHEST_PORT = 65_535
HIGHEST_NODE_ID = 2**31 - 1
NODE_ID = "{node_id}"
"""The place of a broker's ID in the pattern of host names."""
_SECRETIVE = ("password", "secret", "token")


def parse_node_ids(text: str) -> tuple[int, ...]:
    """Return `"1-3,7"` as `(1, 2, 3, 7)`. Raises ValueError that names the unreadable part."""
    nodes: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"{part.strip()!r} is neither a node ID nor a range such as 1-9")
        # Checked before anything of such a size exists: each node has a port, and clients wait meanwhile.
        if int(last or first) > HIGHEST_PORT:
            raise ValueError(f"{part.strip()!r} goes above {HIGHEST_PORT}, the last node ID that a port can be for")
        nodes.update(range(int(first), int(last or first) + 1))
    if not nodes:
        raise ValueError("names no node ID")
    return tuple(sorted(nodes))


def format_node_ids(nodes: Iterable[int]) -> str:
    """Return node IDs as `parse_node_ids` reads them, ascending: `(1, 2, 3, 7)` as `"1-3,7"`."""
    parts: list[list[int]] = []
    for node in sorted(nodes):
        if parts and parts[-1][-1] == node - 1:
            parts[-1][1:] = [node]
        else:
            parts.append([node])
    return ",".join("-".join(map(str, part)) for part in parts)


def broker_host(pattern: str, node_id: int) -> str:
    """Return the host name of a broker by the pattern of `sni_broker_host`."""
    return pattern.replace(NODE_ID, str(node_id))


def node_id_of(pattern: str, host: str) -> int | None:
    """Return the ID of the broker that has the host name by the pattern; None if no broker has it.

    Both are in lower case. Each ID has one name: the digits have no zeros before them.
    """
    before, _, behind = pattern.partition(NODE_ID)
    digits = host[len(before) : len(host) - len(behind)]
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(HIGHEST_NODE_ID)):
        return None
    node_id = int(digits)
    return node_id if node_id <= HIGHEST_NODE_ID and broker_host(pattern, node_id) == host else None


def parse_address(text: str) -> tuple[str, int]:
    """Return `"host:port"` or `"[v6]:port"` as a pair. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return host.strip("[]"), int(port)


def masked(text: str) -> str:
    """Return a URL, or a text meant as one, without the user and password before its last `@` and without the values of
    its query."""
    # This also works if the scheme is missing or misspelled: the text before an `@` is secret.
    text = re.sub(r"(?is)^([a-z][a-z0-9+.-]*://)?.*@", r"\1***@", text)
    return re.sub(r"(?<=[?&])([^=&?]*)=([^&]*)", _masked_option, text)


def masked_words(text: str) -> str:
    """Return a text in which each word is `masked`: a text that others wrote, with URLs somewhere in it."""
    return re.sub(r"\S+", lambda word: masked(word[0]), text)


def _masked_option(option: re.Match[str]) -> str:
    return f"{option[1]}=***" if any(word in option[1].lower() for word in _SECRETIVE) else option[0]
