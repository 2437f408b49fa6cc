"""The express lane of one connection: requests and answers that are one whole frame, and go on as they came.

A chunk of the client takes the lane if it is exactly one frame, if nothing is paused or under way in the frame reader,
and if the client may send any request to its own broker. Its API must be one that passes, or the handler of its API
must recognize it (`client.express`). Everything else takes the ordinary path, which also learns. The lane leaves
everything as the ordinary path would: a test compares the two (decision 0120).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from proxy.client.express import SIZE_BYTES
from proxy.client.slots import BrokerSlot
from proxy.connection.gate import BROKER_FULL, IN_FLIGHT
from proxy.protocol.apis import API_TABLE, Treatment

if TYPE_CHECKING:
    from proxy.connection.charges import Charges
    from proxy.connection.requests import Requests
    from proxy.process.memory import MemoryBudget
    from proxy.telemetry.stats import Stats

_HEAD = struct.Struct(">ihhi")
"""Size, API key, API version, correlation ID."""
_LEAST_BYTES = _HEAD.size - SIZE_BYTES
_PASSES = {api.key: api for api in API_TABLE.values() if api.treatment is Treatment.PASS}


class ExpressLane:
    """The lane of one client's requests."""

    __slots__ = (
        "_answers",
        "_authentication",
        "_broker_side",
        "_charges",
        "_client",
        "_express",
        "_gate",
        "_max_frame_bytes",
        "_max_in_flight",
        "_memory",
        "_reader",
        "_reading",
        "_session",
        "_stats",
    )

    def __init__(
        self,
        client: Requests,
        charges: Charges,
        memory: MemoryBudget,
        stats: Stats,
        *,
        max_frame_bytes: int,
        max_in_flight: int,
    ) -> None:
        self._client = client
        self._answers = client.answers
        self._broker_side = client.broker_side
        self._reading = client.reading
        self._gate = client.reading.gate
        self._reader = client.reading.reader
        self._express = client.session.express
        authentication = client.session.authentication
        self._authentication = authentication if authentication.required else None
        self._charges = charges
        self._memory = memory
        self._stats = stats
        self._max_frame_bytes = max_frame_bytes
        self._max_in_flight = max_in_flight

    def take(self, data: bytes) -> bool:
        """Send a request on. False, and nothing has happened, if the bytes need the ordinary path."""
        size = len(data) - SIZE_BYTES
        if not (self._reader.between_frames and _LEAST_BYTES <= size <= self._max_frame_bytes):
            return False
        announced, api_key, api_version, correlation_id = _HEAD.unpack_from(data)
        side = self._broker_side
        upstream = side.upstream
        if announced != size or upstream is None or upstream.lost or upstream.transport is None or side.stands_in:
            return False
        if self._authentication is not None and not self._authentication.settled:
            return False
        express = self._express.get(api_key)
        slot: BrokerSlot | None
        if express is not None:
            if express.api_version != api_version or not self._memory.has_room(size):
                return False
            slot = express.take(data, correlation_id)
            if slot is None:
                return False
        else:
            api = _PASSES.get(api_key)
            if api is None or not api.lowest_version <= api_version <= api.highest_version:
                return False
            slot = BrokerSlot(self._answers, api_key, api_version, correlation_id)
        self._stats.requests[api_key] += 1
        self._client.count += 1
        slots = self._answers.slots
        slots.append(slot)
        upstream.expected.append(slot)
        if len(slots) >= self._max_in_flight:
            self._reading.pause(IN_FLIGHT)
        upstream.transport.write(data)
        if self._gate.causes & BROKER_FULL and express is not None and express.held:
            self._charges.hold(size)
            self._charges.frame_to_broker()
        return True
