"""Faults of the stack during the run: restarts, kills, reloads, slow and broken links, brokers that hang."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from proxy.demo.errors import StackError
from proxy.demo.stack import Stack
from tests.moves_under_load.cluster import Cluster, NotSettled
from tests.retention_under_load.books import Problems
from tests.support.network import Network

SLOW_SECONDS, RESET_SECONDS, FROZEN_SECONDS = 8.0, 1.5, 3.0
REDIS_LATENCY_MS, S3_LATENCY_MS = 100, 400


class Happened(NamedTuple):
    """One fault."""

    at_s: float
    """Seconds since the beginning of the run."""
    what: str
    seconds: float


def catches(pid: int, number: signal.Signals) -> bool:
    """True if a process has a handler for a signal, according to Linux."""
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (number - 1) & 1)


class Faults:
    """The faults of one run, in an order from its seed; each kind comes once before any comes again."""

    def __init__(
        self,
        stack: Stack,
        network: Network,
        topics: Callable[[], list[str]],
        calm: threading.Lock,
        seed: int,
        problems: Problems,
    ) -> None:
        """Expect `topics`, which are classic, to have the same leaders and replicas after a broker's restart."""
        self.happened: list[Happened] = []
        self.only: tuple[str, ...] = ()
        """Kinds to choose from; empty means all."""
        self._stack, self._network, self._topics, self._problems = stack, network, topics, problems
        self._calm = calm
        self._chance = random.Random(seed)
        self._cluster = Cluster(stack)
        self._began_s = time.monotonic()
        self._bag: list[str] = []

    @property
    def victim(self) -> str:
        """Return the proxy that may be killed and drained at any time; the others should live long."""
        return list(self._stack.proxies)[-1]

    def kinds(self) -> dict[str, Callable[[], None]]:
        """Return the faults by name."""
        found: dict[str, Callable[[], None]] = {
            "Redis answers slowly": lambda: self._network.slow(
                [*self._network.redis.values()], REDIS_LATENCY_MS, SLOW_SECONDS
            ),
            "connections to Redis are reset": lambda: self._reset(self._network.redis),
            "a proxy is killed": self.kill_proxy,
            "a proxy is drained and started": lambda: self.drain(self.victim),
            "SIGHUP to all proxies": self.reload,
            "a broker hangs": self._hang,
            "a broker is restarted": self._restart_broker,
        }
        if self._network.s3:
            found |= {
                "object storage answers slowly": lambda: self._network.slow(
                    [*self._network.s3.values()], S3_LATENCY_MS, SLOW_SECONDS
                ),
                "connections to object storage are reset": lambda: self._reset(self._network.s3),
            }
        return found

    def next(self) -> None:
        """Carry out the next fault; an exception counts as a problem."""
        kinds = self.kinds()
        if not self._bag:
            self._bag = self._chance.sample(sorted(self.only or kinds), len(self.only or kinds))
        what = self._bag.pop()
        self.do(what, kinds[what])

    def do(self, what: str, act: Callable[[], None]) -> None:
        """Carry out the named fault; otherwise like `next`."""
        began_s = time.monotonic()
        try:
            act()
        except (StackError, NotSettled, AssertionError) as error:
            self._problems.report(f"{what}: {error!r}")
        self.happened.append(Happened(began_s - self._began_s, what, time.monotonic() - began_s))

    def rolling_restart(self) -> None:
        """Drain and restart all proxies, one after the other."""
        for name in self._stack.proxies:
            self.drain(name)

    def drain(self, name: str) -> None:
        """Send SIGTERM, and start the proxy again after its end."""
        with self._calm:
            code = self._stack.terminate_proxy(name)
            self._stack.start_proxy(name)
        if code != 0:
            tail = self._stack.log_tail(f"proxy-{name}", 5)
            self._problems.report(f"proxy {name} ended with {code} after SIGTERM: {tail}")

    def kill_proxy(self) -> None:
        """Send SIGKILL."""
        with self._calm:
            self._stack.kill_proxy(self.victim)
            time.sleep(self._chance.uniform(0.2, 2.0))
            self._stack.start_proxy(self.victim)

    def reload(self) -> None:
        """Send SIGHUP to the proxies whose release handles it."""
        for proxy in self._stack.proxies.values():
            if catches(proxy.process.pid, signal.SIGHUP):
                os.kill(proxy.process.pid, signal.SIGHUP)

    def _node(self) -> int:
        return self._chance.choice(sorted(self._stack.kafka.brokers))

    def _reset(self, links: dict[str, object]) -> None:
        self._network.reset(links[self._chance.choice(sorted(links))], RESET_SECONDS)

    def _hang(self) -> None:
        name = f"broker-{self._node()}"
        with self._calm:
            self._stack.pause(name)
            try:
                time.sleep(FROZEN_SECONDS)
            finally:
                self._stack.resume(name)
            self._cluster.wait_settled(self._topics())

    def _restart_broker(self) -> None:
        node = self._node()
        with self._calm:
            self._stack.stop_broker(node)
            self._stack.start_broker(node)
            # A returning broker leads nothing until an election makes it a leader.
            self._cluster.elect(self._cluster.wait_settled(self._topics()))
