"""The page on the real admin port, with its headers, errors and actions, on top of a source that only records."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from proxy.admin.http import AdminServer
from proxy.config import Admin
from tests.admin_page.browser import opened
from tests.unit.admin.api.test_http import HOSTILE, SHOWN, Source
from tests.unit.process.test_ports import settings_of

pytestmark = pytest.mark.asyncio(loop_scope="package")

TOKEN = "open-sesame"


async def test_actions_reach_the_proxy_with_the_token_only(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    source = Source(settings_of())
    server = AdminServer(Admin(port=0, token_file=file), source)
    await server.start()
    try:
        async with opened(browser, f"http://127.0.0.1:{server.port}/") as seen:
            page, outcome = seen.page, seen.page.locator(".outcome")
            await expect(page.locator("#topic-table tbody th")).to_have_text(SHOWN)
            assert HOSTILE != SHOWN
            await page.get_by_label("Token").fill("wrong")
            await page.get_by_label("Log level").select_option("warning")
            await page.get_by_role("button", name="Set log level").click()
            await expect(outcome).to_contain_text("Not done. 401: the token is missing or wrong")
            await page.get_by_label("Token").fill(TOKEN)
            await page.get_by_role("button", name="Set log level").click()
            await expect(outcome).to_have_text("The log level is warning.")
            await page.get_by_role("button", name="Drain…").click()
            await page.get_by_role("dialog").get_by_role("button", name="Drain").click()
            await expect(outcome).to_have_text("The drain has begun.")
            assert (source.levels, source.drained) == (["warning"], 1)
            # Chromium itself logs a line for the 401.
            assert [said for said in seen.complaints if "401" not in said] == []
            assert seen.foreign == []
    finally:
        await server.close()


async def test_without_a_token_it_only_reads(browser: Browser) -> None:
    server = AdminServer(Admin(port=0), Source(settings_of()))
    await server.start()
    try:
        async with opened(browser, f"http://127.0.0.1:{server.port}/") as seen:
            await expect(seen.page.locator("#action-body")).to_contain_text("read-only here: no token is set")
            await expect(seen.page.get_by_role("button", name="Drain…")).to_have_count(0)
    finally:
        await server.close()
