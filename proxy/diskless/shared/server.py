"""The storage process's side: it takes the batches of all workers into one WAL, and reads for all of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from proxy.diskless.shared.blocks import Arena, SharedCaches
from proxy.diskless.shared.messages import (
    MOST_BATCHES,
    Append,
    ArenaGone,
    Drain,
    Fetch,
    Fetched,
    NewSlab,
    NotFetched,
    Refused,
    Settled,
    SlabGone,
)
from proxy.diskless.wal.buffer import WalBuffer
from proxy.diskless.wal.outcome import Outcome
from proxy.process import open_files
from proxy.process.channel import Channel, is_sibling
from proxy.process.shared_memory import mapped
from proxy.storage.interface import StorageError

log = structlog.get_logger()

_BACKLOG = 64
_ACCEPT_AGAIN_S = 0.5
_MOST_TEXT = 1_000
"""Characters of an error that are passed on."""


class StorageServer:
    """Serves the workers that connect to a socket."""

    def __init__(self, address: str, wal: WalBuffer, caches: SharedCaches) -> None:
        """`address` is that of the socket on which workers come."""
        self._address = address
        self._wal = wal
        self._caches = caches
        self._listening: socket.socket | None = None
        self._workers: set[_ServedWorker] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()
        caches.tail.gone = caches.cold.gone = self._arena_gone

    def listen(self) -> None:
        """Begin to take workers."""
        listening = self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(self._address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept)

    async def wait_until_unused(self) -> None:
        """Wait until no worker is connected."""
        await self._none_left.wait()

    def close(self) -> None:
        """Take no workers any more, and leave those that are here."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for worker in list(self._workers):
            worker.close()

    def _accept(self) -> None:
        listening, loop = self._listening, asyncio.get_running_loop()
        assert listening is not None
        try:
            connected, _ = listening.accept()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            log.error("worker_not_accepted", reason=str(error), remedy=open_files.REMEDY)
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_AGAIN_S, self._accept_again, listening)
            return
        if not is_sibling(connected):
            connected.close()
            return
        self._none_left.clear()
        self._workers.add(_ServedWorker(connected, self._wal, self._caches, self._left))

    def _accept_again(self, listening: socket.socket) -> None:
        if listening is self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept)

    def _left(self, worker: _ServedWorker) -> None:
        self._workers.discard(worker)
        if not self._workers:
            self._none_left.set()

    def _arena_gone(self, arena: Arena) -> None:
        for worker in self._workers:
            worker.arena_gone(arena)


class _ServedWorker:
    """One worker. What it has sent goes on if it ends."""

    def __init__(
        self,
        connected: socket.socket,
        wal: WalBuffer,
        caches: SharedCaches,
        left: Callable[[_ServedWorker], None],
    ) -> None:
        self._wal = wal
        self._caches = caches
        self._left = left
        self._slabs: dict[int, memoryview] = {}
        self._arenas: set[int] = set()
        """Arenas that the worker has."""
        self._outcomes: list[tuple[int, Outcome]] = []
        self._reading: set[asyncio.Task[None]] = set()
        self._channel = Channel(connected, self._receive, self._lost)

    def arena_gone(self, arena: Arena) -> None:
        """An arena is evicted."""
        if arena.number in self._arenas:
            self._arenas.discard(arena.number)
            self._channel.send(ArenaGone(arena.number))

    def close(self) -> None:
        """Leave the worker."""
        self._channel.close()
        self._lost()

    def _lost(self) -> None:
        for task in self._reading:
            task.cancel()
        self._slabs.clear()
        self._left(self)

    def _receive(self, message: Any, descriptors: list[int]) -> None:
        try:
            if isinstance(message, Append):
                self._append(message)
            elif isinstance(message, Fetch):
                task = asyncio.get_running_loop().create_task(self._fetch(message))
                self._reading.add(task)
                task.add_done_callback(self._reading.discard)
            elif isinstance(message, NewSlab):
                self._slabs[message.slab] = mapped(descriptors[0], message.size_bytes)
            elif isinstance(message, SlabGone):
                del self._slabs[message.slab]
            elif isinstance(message, Refused):
                self._wal.refused(*message)
            elif isinstance(message, Drain):
                self._wal.flush()
        except Exception:
            self._give_up()

    def _append(self, message: Append) -> None:
        for one in message.batches:
            self._wal.append(
                one.topic_id,
                one.partition,
                self._slabs[one.slab][one.offset : one.offset + one.header.length],
                one.header,
                partial(self._settle, one.number),
                log_append_time=one.log_append_time,
                patience_s=one.patience_s,
                markers_from=one.markers_from,
            )

    def _settle(self, number: int, outcome: Outcome) -> None:
        if not self._outcomes:
            asyncio.get_running_loop().call_soon(self._tell)
        self._outcomes.append((number, outcome))
        if len(self._outcomes) == MOST_BATCHES:
            self._tell()

    def _tell(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if outcomes:
            self._channel.send(Settled(tuple(outcomes)))

    async def _fetch(self, message: Fetch) -> None:
        try:
            blocks = self._caches.cold if message.cold else self._caches.tail
            place = await blocks.fetch(message.key, message.start, message.end)
        except StorageError as error:
            self._channel.send(NotFetched(message.number, type(error).__name__, str(error)[:_MOST_TEXT]))
            return
        except Exception:
            self._give_up()
            return
        arena = place.arena
        descriptors = [] if arena.number in self._arenas else [arena.memory.descriptor]
        self._channel.send(
            Fetched(
                message.number,
                arena.number,
                arena.memory.size_bytes,
                place.offset,
                place.length,
                place.was_read,
            ),
            descriptors,
        )
        self._arenas.add(arena.number)

    def _give_up(self) -> None:
        """End the link in place of an answer that the worker would wait for forever."""
        log.exception("worker_not_served", effect="it connects again; its clients get retriable errors")
        self.close()
