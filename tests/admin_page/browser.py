"""A headless Chromium, and pages in it that record problems."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, async_playwright, expect

from proxy.demo import servers

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)
PATIENCE_MS = 30_000
"""Maximum wait; a page that is ready earlier is used at once."""
expect.set_options(timeout=PATIENCE_MS)
DESKTOP, PHONE = (1440, 900), (390, 844)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start the browser. Raises StackError if there is none."""
    program, environment = servers.chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, env=dict(environment), args=list(ARGUMENTS), timeout=2 * PATIENCE_MS
        )
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Watched:
    """A page with its problems."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """Messages of the console, of scripts, and of the content security policy."""
    foreign: list[str] = field(default_factory=list)
    """Requests to other origins."""


@asynccontextmanager
async def opened(
    browser: Browser, url: str, size: tuple[int, int] = DESKTOP, *, dark: bool = False, **options: Any
) -> AsyncIterator[Watched]:
    """Open the page at `url` and wait for a first answer of each kind; `options` are of Playwright's contexts."""
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        locale="en-GB",
        **({"reduced_motion": "reduce"} | options),
    )
    try:
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        watched = Watched(page)
        origin = urlsplit(url).netloc
        page.on(
            "console", lambda said: watched.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on(
            "request", lambda asked: watched.foreign.append(asked.url) if urlsplit(asked.url).netloc != origin else None
        )
        await page.goto(url)
        await expect(page.locator("#updated")).to_contain_text("updated", timeout=PATIENCE_MS)
        yield watched
    finally:
        await context.close()
