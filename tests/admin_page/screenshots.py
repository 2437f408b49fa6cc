"""Take the pictures of docs/admin-page.md: `python -m tests.admin_page.screenshots [--seconds 240] [--to docs/images]`.

The stack is like the demo's, with load in all racks, and one client whose rack is wrong: its client ID names rack-b,
but the partitions of its classic topic are led, and for this topic also read, in rack-a.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from playwright.async_api import expect

from proxy.demo.stack import Stack, StackOptions
from tests.admin_page.browser import PHONE, chromium, opened
from tests.support.topics import create_topic

ROOT = Path(__file__).resolve().parents[2]
ORDERS, LEDGER, EVENTS = "diskless.orders", "ledger", "events"
WRONG = "billing,diskless_rack_id=rack-b"
SIZE = (1440, 1180)
BATCHES_PER_SECOND = 5


class Clients:
    """Threads that produce and consume until they are asked to end."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def produce(self, bootstrap: str, client_id: str, topic: str, bytes_per_second: int) -> None:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "client.id": client_id, "compression.type": "none", "linger.ms": 100}
        )
        records = 10
        record = os.urandom(bytes_per_second // BATCHES_PER_SECOND // records)

        def turn() -> None:
            for _ in range(records):
                producer.produce(topic, record)
            producer.poll(0)
            time.sleep(1 / BATCHES_PER_SECOND)

        self._run(turn, lambda: producer.flush(20))

    def consume(self, bootstrap: str, client_id: str, topic: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "group.id": client_id,
                "auto.offset.reset": "latest",
            }
        )
        consumer.subscribe([topic])
        self._run(lambda: consumer.consume(500, 0.5), consumer.close)

    def _run(self, turn: Callable[[], Any], close: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                while not self._ended.is_set():
                    turn()
            finally:
                close()

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def start_load(stack: Stack, clients: Clients) -> None:
    """Start topics, and clients in all racks."""
    create_topic(stack, ORDERS, "diskless", 12)
    create_topic(stack, EVENTS, "classic", assignment=[[2, 1, 3]] * 3)
    create_topic(stack, LEDGER, "classic", assignment=[[1, 2, 3]] * 3)
    for rack in stack.options.racks:
        here = stack.bootstrap(rack)
        clients.produce(here, f"shop-{rack[-1]}", ORDERS, 400_000)
        clients.consume(here, f"warehouse-{rack[-1]}", ORDERS)
        clients.consume(here, f"search-{rack[-1]}", EVENTS)
    clients.produce(stack.bootstrap("rack-b"), "web", EVENTS, 150_000)
    clients.produce(stack.bootstrap("rack-a"), "accounts", LEDGER, 60_000)
    clients.produce(stack.bootstrap("rack-a"), WRONG, LEDGER, 250_000)
    clients.consume(stack.bootstrap("rack-a"), WRONG, LEDGER)


async def take(stack: Stack, to: Path, *, whole: bool) -> None:
    """Take all pictures, of the proxy that the wrong client uses."""
    url = f"{stack.admin_url('rack-b')}/"
    async with chromium() as browser:
        for name, size, dark, top in (
            ("admin-page", SIZE, False, ""),
            ("admin-page-dark", (1440, 1000), True, "#plots"),
            ("admin-page-phone", (PHONE[0], 1500), False, ""),
        ):
            async with opened(browser, url, size, dark=dark) as seen:
                await expect(seen.page.locator(".crosser").first).to_be_visible()
                if top:
                    await seen.page.locator(top).evaluate("(section) => section.scrollIntoView()")
                    await expect(seen.page.locator(f'.sections a[href="{top}"]')).to_have_attribute(
                        "aria-current", "true"
                    )
                await seen.page.screenshot(path=to / f"{name}.png")
        async with opened(browser, url, (1180, 1400)) as seen:
            await expect(seen.page.locator(".crosser").first).to_be_visible()
            around = await seen.page.locator("#flows").bounding_box()
            assert around is not None
            clip = {"x": 0, "y": around["y"] - 12, "width": 1180, "height": around["height"] + 24}
            await seen.page.screenshot(path=to / "wrong-rack.png", clip=clip)
            if whole:
                await seen.page.screenshot(path=to / "whole.png", full_page=True)


def picture_arguments(description: str | None, seconds: float) -> argparse.Namespace:
    """Parse the arguments of a tool that takes pictures of a stack, and create the directory. `seconds` is a
    default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=seconds, help="of load before a picture is taken")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="directory of the pictures")
    parser.add_argument("--whole", action="store_true", help="also make whole.png, all that there is, to look at")
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    return asked


def main() -> None:
    asked = picture_arguments(__doc__, 240)
    clients = Clients()
    overrides = {"fetch": {"leader_read_topics": [LEDGER]}}
    with Stack(StackOptions(overrides=overrides, start_timeout_seconds=180)) as stack:
        try:
            start_load(stack, clients)
            time.sleep(asked.seconds)
            asyncio.run(take(stack, asked.to, whole=asked.whole))
        finally:
            clients.end()


if __name__ == "__main__":
    main()
