"""Whose rack is it: the client's, from its client ID, else the proxy's (KAFKA-19257, KIP-1163).

Also the sticky choice among equals: rendezvous hashing, so that every proxy gives one client the same answer, clients
spread evenly, and only those of a lost candidate move.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

RACK_HINT = re.compile(r"(?:^|[ ,|])diskless_rack_id=([^=,| ]*)")
"""The hint in a client ID, as KIP-1163 has it."""

Candidate = TypeVar("Candidate", int, str)


@lru_cache(maxsize=4096)
def hinted_rack(client_id: str | None) -> str | None:
    """The rack that a client ID names, or None. An empty hint is none."""
    found = RACK_HINT.search(client_id) if client_id else None
    return (found.group(1) or None) if found else None


def client_rack(client_id: str | None, proxy_rack: str, known_racks: Sequence[str] = ()) -> str:
    """The client's rack: the hint of its client ID, else the rack of the proxy that it came to.

    Connect and Streams append `-…` to a client ID: a hint that begins with a known rack and a dash means that rack.
    """
    hint = hinted_rack(client_id)
    if hint is None:
        return proxy_rack
    if hint not in known_racks:
        prefixes = [rack for rack in known_racks if hint.startswith(rack + "-")]
        if prefixes:
            return max(prefixes, key=len)
    return hint


def sticky_choice(client: str, candidates: tuple[Candidate, ...]) -> Candidate:
    """The candidate that `client` keeps as long as it is there: the highest hash of the pair."""
    first: Candidate = sticky_order(client, candidates)[0]
    return first


@lru_cache(maxsize=65536)
def sticky_order(client: str, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The candidates as `client` prefers them; the order of two never depends on a third."""

    def weight(candidate: Candidate) -> bytes:
        return blake2b(f"{client}\0{candidate}".encode(), digest_size=8).digest()

    return tuple(sorted(candidates, key=weight, reverse=True))
