"""The proxy's own connections: a broker that hangs, or closes the connection, is tried after the others next time."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.brokers.service import BrokerAccess, ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from tests.unit.replicas.fetch_server import API_VERSIONS, fetch_server

BASE: dict[str, Any] = {
    "brokers": {"bootstrap": ["127.0.0.1:1"]},
    "redis": {"url": "redis://unused"},
    "storage": {"url": "file:///unused"},
}


async def test_a_broker_that_hangs_is_tried_last_the_next_time() -> None:
    async with fetch_server() as hanging, fetch_server() as well:
        addresses = [("127.0.0.1", server.port) for server in (hanging, well)]
        access = BrokerAccess(Settings(rack="rack-a", **BASE))
        service = ServiceConnection(lambda: addresses, access, request_timeout_s=0.2, max_frame_bytes=1 << 20)
        try:
            await service.ask(API_VERSIONS, 0, b"")
            assert (len(hanging.asked), len(well.asked)) == (1, 0)
            hanging.answering.clear()
            with pytest.raises(BrokerUnreachable):
                await service.ask(API_VERSIONS, 0, b"")
            await service.ask(API_VERSIONS, 0, b"")
            assert (len(hanging.asked), len(well.asked)) == (2, 1)
        finally:
            service.close()


async def test_a_broker_that_closes_the_connection_is_tried_last_the_next_time() -> None:
    """A controller in the place of a broker does this."""
    async with fetch_server() as closing, fetch_server() as well:
        closing.closing_all = True
        addresses = [("127.0.0.1", server.port) for server in (closing, well)]
        access = BrokerAccess(Settings(rack="rack-a", **BASE))
        service = ServiceConnection(lambda: addresses, access, request_timeout_s=60, max_frame_bytes=1 << 20)
        try:
            with pytest.raises(BrokerUnreachable):
                await service.ask(API_VERSIONS, 0, b"")
            await service.ask(API_VERSIONS, 0, b"")
            assert (len(closing.asked), len(well.asked)) == (1, 1)
        finally:
            service.close()
