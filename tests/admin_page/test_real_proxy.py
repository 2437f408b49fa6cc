"""The page of a real proxy that serves a client whose rack is wrong."""

from __future__ import annotations

import asyncio
import re
import uuid

import pytest
from confluent_kafka import Producer
from playwright.async_api import Browser, expect

from proxy.demo.stack import Stack
from tests.admin_page.browser import PATIENCE_MS, opened
from tests.support.topics import DISKLESS, new_topic

pytestmark = pytest.mark.asyncio(loop_scope="package")

RECORD = b"\x5a" * 100_000


def send(producer: Producer, topic: str) -> None:
    """Send a few megabytes, and wait until all are acknowledged."""
    failed: list[object] = []
    for _ in range(40):
        producer.produce(
            topic, RECORD, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert failed == []


async def test_a_client_whose_rack_is_wrong_is_shown_with_its_cost(stack: Stack, browser: Browser) -> None:
    topic = await asyncio.to_thread(new_topic, stack, "wrong-rack", DISKLESS)
    client_id = f"billing-{uuid.uuid4().hex[:6]},diskless_rack_id=rack-misspelt"
    producer = Producer(
        {"bootstrap.servers": stack.bootstrap("rack-a"), "client.id": client_id, "compression.type": "none"}
    )
    await asyncio.to_thread(send, producer, topic)
    async with opened(browser, f"{stack.admin_url('rack-a')}/") as seen:
        page = seen.page
        await expect(page.locator("#state")).to_contain_text("ready")
        crosser = page.locator(".crosser", has_text=client_id)
        await expect(crosser.locator(".crossed")).to_have_text(re.compile(r"[\d.]+ MB crossed"))
        await expect(crosser.locator(".source")).to_contain_text("in rack-misspelt (from the client ID)")
        await expect(crosser.locator(".remedy")).to_contain_text(
            "says rack-misspelt, where neither a proxy nor a broker is: correct the rack in its client.id"
        )
        flow = page.locator("#flow-table tr.marked", has_text="unknown").filter(has_text="produce")
        await expect(flow.locator("td").nth(7)).to_have_text(re.compile(r"\$0\.0+[1-9]"))

        # The proxy computes rates at its next sample, while records are on their way.
        async def keep_sending() -> None:
            while True:
                await asyncio.to_thread(send, producer, topic)

        sending = asyncio.create_task(keep_sending())
        try:
            label = page.locator(".pill-text.crossing", has_text=re.compile(r"[\d.]+ [kM]?B/s · \$[\d.,]+/month"))
            await expect(label.first).to_be_visible(timeout=2 * PATIENCE_MS)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        rows = page.locator("#topic-table tbody tr")
        await page.get_by_role("searchbox", name="Filter topics").fill(topic)
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text("diskless")
        await expect(page.locator("#plots .plot").first).to_be_attached()
        await expect(page.locator("#proxies tbody tr")).to_have_count(3)
        assert (seen.complaints, seen.foreign) == ([], [])
