"""Fetch sessions of brokers, up to v12: a session names a topic once, and goes on with whatever topic has the name."""

from __future__ import annotations

import pytest

from proxy.wire.fetch import FetchRequest, parse_fetch_request
from tests.unit.fetching.broker_model import NEAR, Proxied
from tests.unit.fetching.test_routed import FETCH_SESSION_ID_NOT_FOUND, asked, one_partition


def on_its_own_listener() -> Proxied:
    """Return a client whose Fetches go to its broker."""
    proxied, _, _ = one_partition()
    proxied.session.node_id = NEAR
    return proxied


def begin(version: int = 12) -> FetchRequest:
    return asked(version, ("t", 0, 0), session_epoch=0)


def go_on(version: int = 12) -> FetchRequest:
    """Return a Fetch that names no topic."""
    return asked(version, session_id=77, session_epoch=1)


async def error_of(proxied: Proxied, request: FetchRequest) -> int | None:
    """Return the error of the proxy's answer; None if the broker answered."""
    response = await proxied.fetch(request)
    return None if response is None else response.error_code


@pytest.mark.parametrize(
    ("version", "error"), [(7, FETCH_SESSION_ID_NOT_FOUND), (12, FETCH_SESSION_ID_NOT_FOUND), (13, None)]
)
async def test_a_session_ends_after_a_name_became_diskless(version: int, error: int | None) -> None:
    """The consumer would read the placeholder topic's empty log forever. An ID is never another topic's."""
    proxied = on_its_own_listener()
    assert await error_of(proxied, begin(version)) is None
    assert await error_of(proxied, go_on(version)) is None
    proxied.topics.names_taken += 1
    assert await error_of(proxied, go_on(version)) == error
    assert await error_of(proxied, begin(version)) is None
    assert await error_of(proxied, go_on(version)) is None


async def test_a_session_that_came_with_another_connection_goes_on() -> None:
    proxied = on_its_own_listener()
    assert await error_of(proxied, go_on()) is None
    proxied.topics.names_taken += 1
    assert await error_of(proxied, go_on()) == FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(("version", "by_name"), [(12, True), (13, False)])
async def test_no_session_by_names_lasts_without_a_lease(version: int, by_name: bool) -> None:
    proxied = on_its_own_listener()
    assert await error_of(proxied, begin(version)) is None
    proxied.topics.is_current = False
    assert await error_of(proxied, go_on(version)) == (FETCH_SESSION_ID_NOT_FOUND if by_name else None)
    assert await error_of(proxied, begin(version)) is None
    sent = parse_fetch_request(proxied.forwarded[-1].body, version)
    assert sent.session_epoch == (-1 if by_name else 0)
