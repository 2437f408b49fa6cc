"""What happens to the stack meanwhile: restarts, kills, reloads, slow and broken links, brokers that hang."""

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
    """One of them."""

    at_s: float
    """Since the beginning of the run."""
    what: str
    seconds: float


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, as Linux tells it."""
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (number - 1) & 1)


class Faults:
    """Those of one run; in the order that its seed gives, each kind before any comes again."""

    def __init__(
        self,
        stack: Stack,
        network: Network,
        topics: Callable[[], list[str]],
        calm: threading.Lock,
        seed: int,
        problems: Problems,
    ) -> None:
        """`topics`: classic ones whose leaders and replicas are to be as before after a broker's restart."""
        self.happened: list[Happened] = []
        self.only: tuple[str, ...] = ()
        """Kinds to choose from; all where empty."""
        self._stack, self._network, self._topics, self._problems = stack, network, topics, problems
        self._calm = calm
        self._chance = random.Random(seed)
        self._cluster = Cluster(stack)
        self._began_s = time.monotonic()
        self._bag: list[str] = []

    @property
    def victim(self) -> str:
        """The proxy that is killed and drained at any time: the others are to live long."""
        return list(self._stack.proxies)[-1]

    def kinds(self) -> dict[str, Callable[[], None]]:
        """By name."""
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
        """One of them, to its end; what goes wrong with it is a problem."""
        kinds = self.kinds()
        if not self._bag:
            self._bag = self._chance.sample(sorted(self.only or kinds), len(self.only or kinds))
        what = self._bag.pop()
        self.do(what, kinds[what])

    def do(self, what: str, act: Callable[[], None]) -> None:
        """As `next`, of the caller's choice."""
        began_s = time.monotonic()
        try:
            act()
        except (StackError, NotSettled, AssertionError) as error:
            self._problems.report(f"{what}: {error!r}")
        self.happened.append(Happened(began_s - self._began_s, what, time.monotonic() - began_s))

    def rolling_restart(self) -> None:
        """All proxies, one after the other, each drained."""
        for name in self._stack.proxies:
            self.drain(name)

    def drain(self, name: str) -> None:
        """SIGTERM, and start it again when it has ended."""
        with self._calm:
            code = self._stack.terminate_proxy(name)
            self._stack.start_proxy(name)
        if code != 0:
            tail = self._stack.log_tail(f"proxy-{name}", 5)
            self._problems.report(f"proxy {name} ended with {code} when it was told to: {tail}")

    def kill_proxy(self) -> None:
        """SIGKILL."""
        with self._calm:
            self._stack.kill_proxy(self.victim)
            time.sleep(self._chance.uniform(0.2, 2.0))
            self._stack.start_proxy(self.victim)

    def reload(self) -> None:
        """SIGHUP, of those releases that take it."""
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
            # A broker that comes back leads nothing until it is asked to.
            self._cluster.elect(self._cluster.wait_settled(self._topics()))
