"""The bytes of the memory budget that one connection's requests take. Each byte is given back exactly once.

The bytes of a frame are taken before the frame is held: at once, or when it is the frame's turn. From then on they are
in one place at a time:

    wanted ──▶ granted ──▶ frame ──▶ slot, until its answer is finished
                                └──▶ forwarded, until the broker connection has room again
                                └──▶ given back, if nothing holds the frame any more

Answers that the client has not read are charged by `unread`, and requests that the broker has not taken when the client
is gone are charged by `BrokerConnection.finish`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from proxy.process.memory import MemoryBudget
from proxy.protocol.api_keys import PRODUCE
from proxy.wire.steps import LARGE_BYTES

_DECODED_BYTES_PER_BYTE = 32
"""Memory of what is decoded of a large request, for each byte of it: measured for a Fetch, which takes the most."""
_MOST_DECODED_BYTES = 67_108_864
"""Most memory of what is decoded of one request: 50,000 partitions of a Fetch, with about 1,100 bytes each."""


class Holder(Protocol):
    """A slot, as far as its memory is concerned."""

    charge_bytes: int


class Charges:
    """The charges of one connection. `on_granted` is called when the bytes that a frame waits for are taken."""

    __slots__ = ("_ended", "_forwarded_bytes", "_frame_bytes", "_granted_bytes", "_memory", "_on_granted", "granted")

    def __init__(self, memory: MemoryBudget, on_granted: Callable[[], None]) -> None:
        self._memory = memory
        self._on_granted = on_granted
        self.granted = False
        """True between the grant and the next `hold`: the frame that waited has its bytes, and is not held yet."""
        self._granted_bytes = 0
        """Bytes that are waited for or, if `granted`, taken."""
        self._frame_bytes = 0
        self._forwarded_bytes = 0
        self._ended = False

    @property
    def contended(self) -> bool:
        """True if a request waits for memory, of this connection or of another one."""
        return self._memory.contended

    @property
    def forwarded_bytes(self) -> int:
        """Bytes of requests that wait in a full broker connection."""
        return self._forwarded_bytes

    def hold(self, size: int) -> bool:
        """Take the bytes of a frame that is to be held. False if the frame has to wait until `on_granted`."""
        if self.granted:
            self.granted = False
        elif self._ended or not self._memory.try_take(size, self._grant):
            self._granted_bytes = size
            return False
        self._frame_bytes += size
        return True

    def frame_to_slot(self, slot: Holder) -> None:
        """Let a slot hold the bytes of the frame, until it is finished."""
        slot.charge_bytes += self._frame_bytes
        self._frame_bytes = 0

    def frame_to_broker(self) -> None:
        """Let the broker connection, which is full, hold the bytes of the frame."""
        self._forwarded_bytes += self._frame_bytes
        self._frame_bytes = 0

    def give_back_frame(self) -> None:
        """Give back the bytes of the frame: nothing holds it any more."""
        frame_bytes, self._frame_bytes = self._frame_bytes, 0
        self._memory.give_back(frame_bytes)

    def give_back_forwarded(self) -> None:
        """Give back what the broker connection held: it has room again."""
        forwarded_bytes, self._forwarded_bytes = self._forwarded_bytes, 0
        self._memory.give_back(forwarded_bytes)

    def give_back_slot(self, slot: Holder) -> None:
        """Give back what a finished slot holds, also after the end of the connection."""
        charge_bytes, slot.charge_bytes = slot.charge_bytes, 0
        self._memory.give_back(charge_bytes)

    def end(self) -> None:
        """Give back everything except for the slots' bytes, and take no bytes from now on."""
        if self._ended:
            return
        self._ended = True
        self.give_back_forwarded()
        self.give_back_frame()
        if self.granted:
            self.granted = False
            self._memory.give_back(self._granted_bytes)

    def _grant(self) -> bool:
        if self._ended:
            return False
        self.granted = True
        self._on_granted()
        return True


def held_bytes(api_key: int, size: int) -> int:
    """Return the memory that a held frame and what is decoded of it take; a Produce's handler charges the latter."""
    if size <= LARGE_BYTES or api_key == PRODUCE:
        return size
    return size + min(size * _DECODED_BYTES_PER_BYTE, _MOST_DECODED_BYTES)
