"""A request begins the polling window, if there is one, on the express lane and on the ordinary path."""

from __future__ import annotations

import asyncio

from proxy.protocol.api_keys import METADATA
from tests.unit.connection_double import connected, request


async def test_a_request_begins_the_window() -> None:
    sent = await connected(poll_window_us=20_000)
    window = sent.shared.poll_window
    assert window is not None
    assert not window.polls
    sent.client.protocol.data_received(request(METADATA, 1))
    assert window.polls
    await asyncio.sleep(0.04)
    assert not window.polls


async def test_without_the_setting_there_is_no_window() -> None:
    sent = await connected()
    sent.client.protocol.data_received(request(METADATA, 1))
    assert sent.shared.poll_window is None
