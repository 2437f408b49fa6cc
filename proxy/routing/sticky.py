"""The sticky choice among equals: rendezvous hashing.

Every proxy gives one client the same answer, clients spread evenly, and only the clients of a lost candidate move.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

Candidate = TypeVar("Candidate", int, str)


def sticky_choice(client: str, candidates: tuple[Candidate, ...]) -> Candidate:
    """Return the candidate that `client` keeps as long as it is there: the highest hash of the pair."""
    first: Candidate = sticky_order(client, candidates)[0]
    return first


@lru_cache(maxsize=65536)
def sticky_order(client: str, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return the candidates as `client` prefers them; the order of two never depends on a third."""

    def weight(candidate: Candidate) -> bytes:
        return blake2b(f"{client}\0{candidate}".encode(), digest_size=8).digest()

    return tuple(sorted(candidates, key=weight, reverse=True))
