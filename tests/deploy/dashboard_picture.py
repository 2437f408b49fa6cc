"""Draw the dashboard's picture for the docs: `python -m tests.deploy.dashboard_picture [--seconds 300] [--to
docs/images]`.

It uses the stack and the load of the admin page's pictures, with one client whose rack is wrong, and a real Prometheus
that scrapes the proxies. Each query of the dashboard goes to this Prometheus as Grafana would send it. The answers are
drawn with Grafana's own components in a headless Chromium: `picture/` has the page. No Grafana server runs. npm is
needed: the first run fetches the components into `.servers/dashboard-picture`.
"""

from __future__ import annotations

import asyncio
import math
import mimetypes
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, Route

from proxy.demo.servers import servers_directory
from proxy.demo.stack import Stack, StackOptions
from tests.admin_page.browser import PATIENCE_MS, chromium
from tests.admin_page.screenshots import LEDGER, Clients, picture_arguments, start_load
from tests.support.dashboard import DASHBOARD, filled
from tests.support.prometheus import Prometheus, prometheus_server

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).parent / "picture"
ROWS = ("Overview", "Racks and money")
"""Rows that the docs show."""
WIDTH, HEIGHT = 1440, 900
WARM_UP_SECONDS = 45
"""Seconds of load that are not shown: topics are created, groups form, and brokers are slow."""
SCRAPE_SECONDS = 5
"""Assumed interval of Grafana's data source: it requests no finer points."""
POINTS = 400
"""Maximum number of points in a graph: Grafana requests one per pixel."""
ORIGIN = "http://dashboard.invalid"
PAGE = """<!doctype html>
<link rel="stylesheet" href="picture.css">
<script src="picture.js"></script>
<body style="margin: 0"><div id="dashboard"></div></body>
"""
ICONS, FONTS = "public/build/img/icons/", "public/fonts/inter/"
"""Paths where Grafana's components request them."""


def panel_answers(prometheus: Prometheus, start: float, end: float) -> dict[str, Any]:
    """Return all panels, each target with Prometheus' answers from `start` to `end`, in Unix seconds."""
    step = max(SCRAPE_SECONDS, math.ceil((end - start) / POINTS))
    # Grafana computes $__rate_interval in this way.
    rate = max(step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)
    first = math.ceil(start / step) * step
    panels = []
    for panel in DASHBOARD["panels"]:
        targets = []
        for target in panel.get("targets", ()):
            query = filled(target["expr"], rate_interval=f"{rate}s", shown=f"{math.ceil(end - start)}s")
            if target["instant"]:
                answer = prometheus.ask("query", query=query, time=str(end))
            else:
                answer = prometheus.ask("query_range", query=query, start=str(first), end=str(end), step=str(step))
            targets.append(target | {"answer": answer["result"]})
        panels.append(panel | {"targets": targets})
    return {"panels": panels, "from": start * 1000, "to": end * 1000, "step": step * 1000}


def rows(panels: list[dict[str, Any]], titles: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the rows with these titles, and the panels below each of them."""
    kept, row = [], ""
    for panel in sorted(panels, key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"])):
        row = panel["title"] if panel["type"] == "row" else row
        if row in titles:
            kept.append(panel)
    return kept


def installed() -> Path:
    """Return the `node_modules` of the lock file; npm installs them if they are missing."""
    place = servers_directory() / "dashboard-picture"
    lock = (SOURCE / "package-lock.json").read_bytes()
    if (stamp := place / "made-from").exists() and stamp.read_bytes() == lock:
        return place / "node_modules"
    place.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, place)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=place, check=True)
    stamp.write_bytes(lock)
    return place / "node_modules"


def bundle(modules: Path, to: Path) -> None:
    """Build `picture.js` and `picture.css`, with all their imports."""
    command = [str(modules / ".bin" / "esbuild"), str(SOURCE / "picture.tsx"), "--bundle", f"--outdir={to}"]
    options = ["--jsx=automatic", "--loader:.ttf=empty", "--log-level=error"]
    production = "--define:process.env.NODE_ENV='production'"
    subprocess.run([*command, *options, production], env=os.environ | {"NODE_PATH": str(modules)}, check=True)


async def draw(browser: Browser, bundled: Path, modules: Path, what: dict[str, Any], to: Path, *, dark: bool) -> None:
    """Draw all panels in `what` into the picture `to`. Raises AssertionError if the page reports any problem."""
    context = await browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, locale="en-GB", timezone_id="UTC", reduced_motion="reduce"
    )
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))

    async def serve(route: Route) -> None:
        path = route.request.url.removeprefix(f"{ORIGIN}/")
        if not path:
            await route.fulfill(body=PAGE, content_type="text/html")
        elif (file := _file(path, bundled, modules)).exists():
            await route.fulfill(path=file, content_type=mimetypes.guess_type(file)[0])
        else:
            await route.fulfill(status=404)

    await page.route("**/*", serve)
    await page.goto(ORIGIN)
    await page.evaluate("(answers) => draw(answers)", what | {"width": WIDTH, "dark": dark})
    await _settle(page, len(what["panels"]))
    await page.screenshot(path=to)
    await context.close()
    assert not complaints, complaints


def _file(path: str, bundled: Path, modules: Path) -> Path:
    """Return the page's answer to a request for `path` at its origin."""
    if path.startswith(ICONS):
        return modules / "@grafana" / "ui" / "dist" / "public" / "img" / "icons" / path.removeprefix(ICONS)
    if path.startswith(FONTS):
        # One file has all weights.
        return modules / "@fontsource-variable" / "inter" / "files" / "inter-latin-wght-normal.woff2"
    return bundled / path


async def _settle(page: Page, panels: int) -> None:
    """Wait until all panels are drawn, with their icons."""
    await page.wait_for_function(
        "(panels) => document.querySelectorAll('[data-panel]').length === panels", arg=panels, timeout=PATIENCE_MS
    )
    # Tables are painted only while they are in view.
    height = await page.evaluate("document.documentElement.scrollHeight")
    await page.set_viewport_size({"width": WIDTH, "height": height})
    await page.wait_for_function(
        "[...document.querySelectorAll('svg')].every((icon) => icon.childElementCount)", timeout=PATIENCE_MS
    )
    await page.evaluate("() => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))")


async def take(what: dict[str, Any], to: Path, *, whole: bool) -> None:
    """Draw the pictures into the directory `to`: dashboard.png, and whole.png if it is requested."""
    modules = installed()
    shown = what | {"panels": rows(what["panels"], ROWS)}
    with tempfile.TemporaryDirectory() as files:
        bundle(modules, Path(files))
        async with chromium() as browser:
            await draw(browser, Path(files), modules, shown, to / "dashboard.png", dark=False)
            if whole:
                await draw(browser, Path(files), modules, what, to / "whole.png", dark=True)


def main() -> None:
    asked = picture_arguments(__doc__, 300)
    installed()
    clients = Clients()
    overrides = {"fetch": {"leader_read_topics": [LEDGER]}}
    with (
        tempfile.TemporaryDirectory() as directory,
        Stack(StackOptions(overrides=overrides, start_timeout_seconds=180)) as stack,
    ):
        targets = [stack.admin_url(rack).removeprefix("http://") for rack in stack.proxies]
        with prometheus_server(Path(directory), targets) as prometheus:
            prometheus.wait_for(f"sum(up) == {len(targets)}")
            try:
                start_load(stack, clients)
                time.sleep(WARM_UP_SECONDS)
                start = time.time()
                time.sleep(asked.seconds)
                what = panel_answers(prometheus, start, time.time())
            finally:
                clients.end()
    asyncio.run(take(what, asked.to, whole=asked.whole))


if __name__ == "__main__":
    main()
