"""Alter client quotas (KIP-546), which no Python client can do, and wait until the proxies know them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kio.index import load_request_schema

from proxy.demo.stack import Stack
from proxy.wire.cold import encode, nested, read_response
from proxy.wire.header import response_header_length
from tests.support.metrics import Metrics
from tests.support.raw import request
from tests.support.waiting import wait_for

ALTER_CLIENT_QUOTAS, VERSION = 49, 0
BYTE_RATES = ("producer_byte_rate", "consumer_byte_rate")

Entity = tuple[tuple[str, str], ...]
"""Pairs of entity type and name."""


def alter_quotas(ask: Callable[[bytes], bytes | None], limits: Mapping[Entity, float | None]) -> None:
    """Set both byte rates of each entity; None removes them. `ask` sends a request with its size and returns the answer
    without."""
    request_type: Any = load_request_schema(ALTER_CLIENT_QUOTAS, VERSION)
    entry_type: Any = nested(request_type, "entries")
    entity_type, operation_type = (nested(entry_type, field) for field in ("entity", "ops"))
    entries = tuple(
        entry_type(
            entity=tuple(entity_type(entity_type=kind, entity_name=name) for kind, name in entity),
            ops=tuple(operation_type(key=key, value=limit or 0.0, remove=limit is None) for key in BYTE_RATES),
        )
        for entity, limit in limits.items()
    )
    body = encode(request_type(entries=entries, validate_only=False))
    answer = ask(request(ALTER_CLIENT_QUOTAS, VERSION, body))
    assert answer is not None
    at = response_header_length(ALTER_CLIENT_QUOTAS, VERSION, answer)
    for altered in read_response(ALTER_CLIENT_QUOTAS, VERSION, answer[at:]).entries:
        assert altered.error_code == 0, altered


def known_limits(stack: Stack, rack: str) -> float:
    """Return how many limits the rack's proxy knows."""
    return Metrics(stack, rack).value("quota_limits")


def wait_until_known(stack: Stack, rack: str, limits: float) -> None:
    """Wait until the rack's proxy knows `count` limits."""
    wait_for(lambda: known_limits(stack, rack) == limits, "the proxy has read the quotas")
