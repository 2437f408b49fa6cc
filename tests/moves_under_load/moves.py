"""Moves of brokers, proxies and topics: each begins and ends with all replicas in sync."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from proxy.demo.stack import Stack
from tests.moves_under_load.cluster import Cluster

FROZEN_SECONDS = {"freeze briefly": 1.5, "freeze out of the ISR": 4.0, "freeze until fenced": 8.0}
"""Time between `replica.lag.time.max.ms` and `broker.session.timeout.ms` of the stack."""
AWAY_SECONDS = (0.5, 3.0)
MOVED_AT_ONCE = 6


class Moves:
    """The moves of one run, in an order from its seed."""

    def __init__(
        self,
        stack: Stack,
        topics: Callable[[], list[str]],
        chance: random.Random,
        before_proxy_ends: Callable[[str], None],
    ) -> None:
        """Use `topics` to list the existing topics."""
        self._stack = stack
        self._topics = topics
        self._chance = chance
        self._before_proxy_ends = before_proxy_ends
        self.cluster = Cluster(stack)
        self.done: Counter[str] = Counter()

    def all(self) -> dict[str, Callable[[], None]]:
        """Return the moves by name; each returns when the brokers have recovered. They may raise NotSettled or
        StackError."""
        freezes = {name: lambda seconds=seconds: self._freeze(seconds) for name, seconds in FROZEN_SECONDS.items()}
        return {
            "elect": self._elect,
            "reassign": self._reassign,
            **freezes,
            "kill broker": self._kill_broker,
            "stop broker": self._stop_broker,
            "kill proxy": self._kill_proxy,
            "stop proxy": self._stop_proxy,
        }

    def do(self, name: str, move: Callable[[], None]) -> None:
        """Carry out one move."""
        move()
        self.cluster.wait_settled(self._topics())
        self.done[name] += 1

    def _some(self) -> list[tuple[str, int]]:
        places = sorted(self.cluster.partitions(self._topics()))
        return self._chance.sample(places, min(MOVED_AT_ONCE, len(places)))

    def _elect(self) -> None:
        """Elect other leaders among the same replicas."""
        there = self.cluster.partitions(self._topics())
        places = [place for place in self._some() if place in there]
        self.cluster.reassign({place: (*there[place].replicas[1:], there[place].replicas[0]) for place in places})
        self.cluster.elect(places)

    def _reassign(self) -> None:
        """Move to as many other replicas anywhere, even to none in some rack; then elect other leaders."""
        nodes = sorted(self._stack.kafka.brokers)
        there = self.cluster.partitions(self._topics())
        wanted = {
            place: tuple(self._chance.sample(nodes, len(there[place].replicas)))
            for place in self._some()
            if place in there
        }
        self.cluster.reassign(wanted)
        self.cluster.wait_settled(self._topics())
        self.cluster.elect(wanted)

    def _node(self) -> int:
        return self._chance.choice(sorted(self._stack.kafka.brokers))

    def _freeze(self, seconds: float) -> None:
        name = f"broker-{self._node()}"
        self._stack.pause(name)
        try:
            time.sleep(seconds)
        finally:
            self._stack.resume(name)

    def freeze_for(self, seconds: float) -> None:
        """Freeze some broker, and do not wait for its return."""
        name = f"broker-{self._node()}"
        self._stack.pause(name)
        threading.Timer(seconds, self._stack.resume, (name,)).start()

    def _kill_broker(self) -> None:
        node = self._node()
        self._stack.kill_broker(node)
        time.sleep(self._chance.uniform(*AWAY_SECONDS))
        self._stack.start_broker(node)
        self._lead_again()

    def _stop_broker(self) -> None:
        node = self._node()
        self._stack.stop_broker(node)
        time.sleep(self._chance.uniform(*AWAY_SECONDS))
        self._stack.start_broker(node)
        self._lead_again()

    def _lead_again(self) -> None:
        """Elect leaders: a returning broker leads nothing until then."""
        self.cluster.elect(self.cluster.wait_settled(self._topics()))

    def _kill_proxy(self) -> None:
        name = self._chance.choice(sorted(self._stack.proxies))
        self._before_proxy_ends(name)
        self._stack.kill_proxy(name)
        time.sleep(self._chance.uniform(*AWAY_SECONDS))
        self._stack.start_proxy(name)

    def _stop_proxy(self) -> None:
        name = self._chance.choice(sorted(self._stack.proxies))
        self._before_proxy_ends(name)
        self._stack.terminate_proxy(name)
        self._stack.start_proxy(name)
