"""Accessibility problems that axe finds in a page."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from playwright.async_api import Page

from proxy.demo import servers


@cache
def _script() -> str:
    return Path(servers.chromium()[0]).with_name("axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page) -> list[str]:
    """Return each violated rule with its elements; the rules are WCAG 2.2 AA and best practices."""
    await page.evaluate(_script())
    result: dict[str, Any] = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    assert len(result["passes"]) > 8, "axe has looked at next to nothing"
    return [
        f"{broken['id']}: {broken['help']}: {[node['html'][:160] for node in broken['nodes'][:5]]}"
        for broken in result["violations"]
    ]
