"""One Chromium for all tests of the page; without it they are skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from proxy.demo.errors import StackError
from tests.admin_page.canned import Canned, serving

pytest.importorskip("playwright", reason="no playwright in this environment; `make setup` installs it")

from playwright.async_api import Browser

from tests.admin_page.browser import chromium


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    """Start the browser on first use."""
    try:
        async with chromium() as running:
            yield running
    except StackError as error:
        pytest.skip(str(error))


@pytest_asyncio.fixture(loop_scope="package")
async def canned() -> AsyncIterator[Canned]:
    """Return an admin port with answers that the test can change."""
    async with serving(Canned()) as running:
        yield running
