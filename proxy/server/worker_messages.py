"""The messages between the parent of workers and a worker.

They go over a pair of connected sockets that only these two processes have. A frame has four bytes of length and a
pickle. Questions are answered in their order.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from proxy.config import Settings

_SIZE = struct.Struct(">I")


class Ask(Enum):
    """The questions of a parent."""

    WHY_NOT_READY = auto()
    """Answered with the reason, or None."""
    WHY_NOT_SERVING = auto()
    """Answered with the reason why clients of classic topics are not served, or None."""
    REMARK = auto()
    """Answered with a problem that an operator should look at although clients are served, or None."""
    METRICS = auto()
    """Answered with the metrics of the proxy and those of the process."""


@dataclass(frozen=True, slots=True)
class TakeSettings:
    """Settings from a parent after a reload. The answer is `reload.ReloadOutcome`."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class SetLogLevel:
    """Log level from a parent; the answer is None when it is set."""

    level: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to the oldest open question."""

    value: Any


@dataclass(frozen=True, slots=True)
class CantStart:
    """Reason why a worker can't start. Sent without a question, as the last message."""

    reason: str


@dataclass(frozen=True, slots=True)
class HoldPorts:
    """Message of a worker: a broker joined outside of `broker_node_ids`. Sent without a question; the answer is
    PortsHeld."""

    node_id: int


@dataclass(frozen=True, slots=True)
class PortsHeld:
    """Message of a parent after HoldPorts; a worker answers nothing."""

    node_id: int
    error: str | None
    """Reason why this proxy can't have the broker's ports; None if it has them."""


def write_message(writer: asyncio.StreamWriter, message: object) -> None:
    """Send a message. Raises ConnectionError if the other side has ended."""
    if writer.is_closing():  # uvloop would raise RuntimeError
        raise ConnectionError("it has ended")
    packed = pickle.dumps(message)
    writer.write(_SIZE.pack(len(packed)) + packed)


async def read_message(reader: asyncio.StreamReader) -> Any:
    """Return the next message. Raises IncompleteReadError at the end."""
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return pickle.loads(await reader.readexactly(size))
