"""Give every proxy its own links to Redis and to the S3 server, through toxiproxy."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import toxiproxy

from proxy.demo.stack import Stack
from tests.support.toxiproxy import closed_link, toxiproxy_server

Link: TypeAlias = toxiproxy.Proxy


class Network:
    """Links by proxy."""

    def __init__(self, redis: dict[str, Link], s3: dict[str, Link]) -> None:
        self.redis, self.s3 = redis, s3

    @staticmethod
    def slow(links: list[Link], latency_ms: int, seconds: float) -> None:
        """Delay all answers by this much for some seconds."""
        for link in links:
            link.add_toxic(
                name="slow",
                type="latency",
                stream="downstream",
                attributes={"latency": latency_ms, "jitter": latency_ms // 3},
            )
        try:
            time.sleep(seconds)
        finally:
            for link in links:
                link.destroy_toxic("slow")

    @staticmethod
    def reset(link: Link, seconds: float) -> None:
        """Reset connections, including new ones, for some seconds."""
        link.add_toxic(name="reset", type="reset_peer", stream="upstream", attributes={"timeout": 0})
        try:
            time.sleep(seconds)
        finally:
            link.destroy_toxic("reset")


@contextmanager
def network_of(stack: Stack) -> Iterator[Network]:
    """Put links between the proxies of a freshly started stack and its stores. The proxies are restarted."""
    with toxiproxy_server(stack.directory / "logs") as server, network_on(server, stack) as network:
        yield network


@contextmanager
def network_on(server: toxiproxy.Toxiproxy, stack: Stack) -> Iterator[Network]:
    """Do the same on a running toxiproxy server: its Python client knows one server at a time."""
    redis: dict[str, Link] = {}
    s3: dict[str, Link] = {}
    for name in stack.proxies:
        redis[name] = closed_link(server, f"redis-{name}", stack.redis.address)
        redis[name].enable()
        settings = {"redis": {"url": f"redis://{redis[name].listen}/0"}}
        if stack.s3 is not None:
            s3[name] = closed_link(server, f"s3-{name}", stack.s3.endpoint_url.removeprefix("http://"))
            s3[name].enable()
            settings["storage"] = {"endpoint_url": f"http://{s3[name].listen}"}
        stack.configure_proxy(name, settings)
    processes = [proxy.process for proxy in stack.proxies.values()]
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait_ended()
    stack.heal()
    for proxy in stack.proxies.values():
        everybody = Counter(one.rack for one in stack.proxies.values())
        proxy.wait_acquainted(everybody, stack.options.start_timeout_seconds, threading.Event())
    yield Network(redis, s3)
