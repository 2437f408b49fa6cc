"""Scenarios and their observations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.model import Ability, Client
from tests.conformance.ways import CLASSIC, DISKLESS, Way

Observation = dict[str, Any]
"""Everything that the client reported, by name; names of topics and groups are made the same for all ways."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The steps of a client, and its observations."""

    name: str
    needs: frozenset[Ability]
    act: Callable[[Client, Way], Observation]
    kinds: tuple[str, ...]
    """Ways through the proxies that are compared with the direct one."""


SCENARIOS: list[Scenario] = []


def scenario(*needs: Ability, kinds: tuple[str, ...] = (CLASSIC, DISKLESS)) -> Callable[..., Any]:
    """Turn a function into a scenario that is named after it."""

    def register(act: Callable[[Client, Way], Observation]) -> Callable[[Client, Way], Observation]:
        SCENARIOS.append(Scenario(act.__name__, frozenset(needs), act, kinds))
        return act

    return register
