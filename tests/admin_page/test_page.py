"""The page in a real browser, with canned answers."""

from __future__ import annotations

import asyncio
import itertools
import re

import pytest
from playwright.async_api import Browser, Page, expect

from tests.admin_page.axe import violations
from tests.admin_page.browser import DESKTOP, PHONE, opened
from tests.admin_page.canned import HOSTILE, LONG, TOKEN, Canned, connection, flow

pytestmark = pytest.mark.asyncio(loop_scope="package")


OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def unfold(page: Page) -> None:
    """Open the sections that are closed at first."""
    for heading in await page.locator(".fold").all():
        await heading.click()


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (DESKTOP, True), (PHONE, False)])
async def test_axe_finds_nothing_and_nothing_comes_from_elsewhere(
    browser: Browser, canned: Canned, size: tuple[int, int], dark: bool
) -> None:
    async with opened(browser, canned.url, size, dark=dark) as seen:
        await unfold(seen.page)
        # All tables of values are alike, and axe looks at every cell, so one is enough.
        for summary in (seen.page.get_by_text("As a table").first, seen.page.get_by_text("How it is calculated")):
            await summary.click()
        assert await violations(seen.page) == []
        assert await seen.page.evaluate(OVERFLOW) <= 0
        assert (seen.complaints, seen.foreign) == ([], [])


async def test_a_page_without_any_data(browser: Browser, canned: Canned) -> None:
    for document in canned.documents.values():
        for key, value in document.items():
            if isinstance(value, list):
                document[key] = []
            elif key == "total":
                document[key] = 0
            elif isinstance(value, dict):
                document[key] = {}
    canned.documents["overview"] |= {"rack": "", "state": "not_ready", "reason": "no broker answers", "actions": False}
    canned.documents["overview"] |= {"started_ms": None}
    async with opened(browser, canned.url, PHONE) as seen:
        await expect(seen.page.locator("#state")).to_have_text("not ready")
        await expect(seen.page.locator("#reason")).to_have_text("Not all clients are served: no broker answers")
        await unfold(seen.page)
        await expect(seen.page.locator("#connections .empty")).to_be_visible()
        await expect(seen.page.locator("#action-body")).to_contain_text("admin.token_file")
        assert await violations(seen.page) == []
        assert seen.complaints == []


async def test_a_thousand_rows_and_long_and_hostile_names(browser: Browser, canned: Canned) -> None:
    canned.documents["connections"] = {
        "total": 4321,
        "connections": [connection(HOSTILE, HOSTILE, 5_000), connection(LONG, LONG, 4_000)]
        + [connection(f"client-{number}", "rack-a") for number in range(998)],
    }
    canned.documents["topics"]["topics"] += [canned.documents["topics"]["topics"][0] | {"name": HOSTILE + LONG}]
    canned.documents["fleet"]["proxies"][1] |= {"proxy": HOSTILE, "rack": HOSTILE, "address": LONG}
    canned.documents["overview"]["flows"] += [flow("classic", "fetch", HOSTILE, LONG, 1e6, 0.1)]
    canned.documents["overview"] |= {"proxy": HOSTILE, "remark": HOSTILE}
    canned.documents["errors"]["errors"][0] |= {"event": HOSTILE, "text": HOSTILE, "remedy": LONG}
    async with opened(browser, canned.url, PHONE) as seen:
        await unfold(seen.page)
        rows = seen.page.locator("#connection-table tbody tr")
        await expect(rows).to_have_count(100)
        await seen.page.get_by_role("button", name="Show up to 1,000").first.click()
        await expect(rows).to_have_count(1000)
        await expect(seen.page.locator("#connection-table .shown")).to_have_text("1,000 of 4,321")
        await seen.page.get_by_role("searchbox", name="Filter connections").fill("client-77")
        await expect(rows).to_have_count(11)
        await expect(seen.page.locator("#crossers .who").first).to_have_text(HOSTILE)
        await expect(seen.page.locator("main img, main script")).to_have_count(0)
        assert await seen.page.title() != "owned"
        assert await seen.page.evaluate(OVERFLOW) <= 0
        assert (seen.complaints, seen.foreign) == ([], [])


async def test_connections_that_cross_have_rate_price_and_remedy(browser: Browser, canned: Canned) -> None:
    canned.documents["connections"]["connections"] += [
        connection("typo,diskless_rack_id=rack-x", "rack-x", 3),
        connection("web", "rack-a", 2, rack_from="proxy", listener="default broker 3", received_bytes=10**9),
        connection("reader", "rack-a", 1, rack_from="network", listener="default broker 3"),
    ]
    async with opened(browser, canned.url) as seen:
        crosser = seen.page.locator(".crosser").first
        await expect(crosser).to_contain_text("billing,diskless_rack_id=rack-b")
        await expect(crosser).to_contain_text("900 MB crossed")
        await expect(crosser).to_contain_text("set its bootstrap.servers to the proxy of rack-b, 10.0.1.5:9092")
        await expect(crosser).to_contain_text("correct the rack in its client.id")
        await expect(seen.page.locator(".crosser .remedy").nth(1)).to_contain_text(
            "says rack-x, where neither a proxy nor a broker is: correct the rack in its client.id; there are rack-a,"
        )
        await expect(seen.page.locator(".crosser .remedy").nth(2)).to_have_text(
            "It produces classic records to broker 3 in rack-c, their leader: make the topic diskless, or move its "
            "leaders to rack-a."
        )
        await expect(seen.page.locator(".crosser .remedy").nth(3)).to_contain_text(
            "or, if it does run in rack-c, correct racks.by_network of this proxy."
        )
        await expect(seen.page.locator("#tiles .crossing")).to_contain_text("1.50 MB/s")
        await expect(seen.page.locator("#tiles .crossing")).to_contain_text("$78.84/month")
        labels = seen.page.locator(".pill-text.crossing")
        await expect(labels).to_have_text(["1.20 MB/s · $63.07/month", "300 kB/s · $15.77/month"])
        picture = seen.page.get_by_role("img", name="Racks and flows. 2 flows cross racks.")
        assert (
            "this proxy in rack-a → clients in rack-b (fetch): 1.20 MB/s; crosses racks, $63.07/month at this rate"
            in (await picture.get_attribute("aria-label") or "")
        )
        row = seen.page.locator("#flow-table tbody tr", has_text="rack-b")
        await expect(row).to_contain_text("crosses")
        await expect(row.locator("td").nth(6)).to_have_attribute("title", "0.0864 USD per hour")


async def test_a_full_buffer_is_flagged_and_a_full_cache_is_not(browser: Browser, canned: Canned) -> None:
    full = canned.documents["overview"]["buffers"][1]
    canned.documents["overview"]["buffers"].append(full | {"name": "cold_cache"})
    async with opened(browser, canned.url) as seen:
        entries = seen.page.locator("#buffer-list li")
        await expect(entries.nth(1)).to_contain_text("held requests⚠ full, 260 MB of 268 MB")
        await expect(entries.nth(3)).to_contain_text("cold cache260 MB of 268 MB")
        await expect(seen.page.get_by_role("meter", name="held requests")).to_have_attribute("aria-valuenow", "97")


async def test_stale_then_fresh_again(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        canned.silent = True
        stale = seen.page.locator("#stale")
        await expect(stale).to_contain_text("Stale since")
        await expect(stale).to_contain_text("503: the workers do not answer; see the log")
        await expect(seen.page.locator("#state")).to_have_text("does not answer")
        await expect(seen.page.locator("#news")).to_have_text("The proxy does not answer.")
        assert await violations(seen.page) == []
        canned.silent = False
        await expect(stale).to_be_hidden()
        await expect(seen.page.locator("#state")).to_have_text("ready")
        assert canned.most_underway == 1


async def test_pause_holds_values(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        await seen.page.get_by_role("button", name="Pause").click()
        await expect(seen.page.locator("#updated")).to_contain_text("paused")
        canned.documents["overview"]["version"] = "9.9.9"
        await seen.page.evaluate("() => new Promise((done) => setTimeout(done, 2500))")
        await expect(seen.page.locator("#facts")).not_to_contain_text("9.9.9")
        await seen.page.get_by_role("button", name="Resume").click()
        await expect(seen.page.locator("#facts")).to_contain_text("9.9.9")


async def test_a_round_in_progress_shows_nothing_after_a_pause(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        canned.go_on.clear()
        async with asyncio.timeout(60):
            await canned.held.wait()  # the next round's first question
        await seen.page.get_by_role("button", name="Pause").click()
        canned.documents["overview"]["version"] = "9.9.9"
        async with seen.page.expect_response("**/api/history"):  # nothing is shown before the second document
            canned.go_on.set()
        await seen.page.evaluate("() => new Promise((done) => setTimeout(done, 500))")
        await expect(seen.page.locator("#facts")).not_to_contain_text("9.9.9")
        await expect(seen.page.locator("#updated")).to_contain_text("paused")
        await seen.page.get_by_role("button", name="Resume").click()
        await expect(seen.page.locator("#facts")).to_contain_text("9.9.9")
        assert canned.most_underway == 1


async def test_bytes_that_cross_two_borders_count_twice(browser: Browser, canned: Canned) -> None:
    canned.documents["overview"]["flows"] = [flow("classic", "produce", "rack-b", "rack-c", 1e6, 0.144, borders=2)]
    async with opened(browser, canned.url) as seen:
        await expect(seen.page.locator("#tiles .crossing")).to_contain_text("2.00 MB/s")
        await expect(seen.page.locator("#money-body")).to_contain_text("1.20 GB")
        await expect(seen.page.locator("#flow-table tbody tr")).to_contain_text("600 MB")


async def test_the_page_works_with_the_keyboard_alone(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        page = seen.page
        focused = page.locator(":focus")
        await page.keyboard.press("Tab")
        await expect(focused).to_have_text("Skip to content")
        await expect(focused).to_be_in_viewport()
        await page.keyboard.press("Enter")
        await expect(page.locator("#content")).to_be_focused()
        order = []
        for _ in range(60):
            await page.keyboard.press("Tab")
            order.append(await focused.evaluate("(one) => one.getAttribute('aria-label') ?? one.textContent.trim()"))
            assert await focused.evaluate(
                "(one) => { const shown = one.type === 'range' ? one.parentElement : one;"
                " return getComputedStyle(shown).outlineStyle !== 'none'; }"
            ), f"{order[-1]} has no visible focus"
        assert [name for name in order if name in ("Flows, table", "Throughput: time", "Connections: time")] == [
            "Flows, table", "Throughput: time", "Connections: time",
        ]  # fmt: skip
        slider = page.get_by_role("slider", name="Throughput: time")
        await slider.focus()
        for _ in range(3):
            await page.keyboard.press("ArrowLeft")
        sample = canned.documents["history"]["samples"][-4]
        shown = f"produce {sample['produce_bytes_per_second'] / 1e6:.2f} MB/s"
        await expect(slider).to_have_attribute("aria-valuetext", re.compile(re.escape(shown)))


async def test_tables_sort_by_buttons(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        table = seen.page.locator("#topic-table")
        first = table.locator("tbody th").first
        await expect(first).to_have_text("diskless.orders")
        await table.get_by_role("button", name="topic", exact=True).press("Enter")
        await expect(table.locator("thead th").first).to_have_attribute("aria-sort", "ascending")
        await table.get_by_role("button", name="topic", exact=True).press("Enter")
        await expect(first).to_have_text("payments")
        await expect(table.locator("thead th").first).to_have_attribute("aria-sort", "descending")


async def test_the_theme_can_be_chosen(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        ground = "() => getComputedStyle(document.body).backgroundColor"
        light = await seen.page.evaluate(ground)
        await seen.page.get_by_role("button", name="Switch to dark").click()
        dark = await seen.page.evaluate(ground)
        assert dark != light
        await seen.page.get_by_role("button", name="Switch to light").click()
        await seen.page.emulate_media(color_scheme="dark")
        await expect(seen.page.get_by_role("button", name="Switch to light")).to_be_visible()
        assert await seen.page.evaluate(ground) == dark, "the system's own colours again"


async def test_long_sections_are_closed_at_first_on_a_phone(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url, PHONE) as seen:
        topics = seen.page.locator("#topics .fold")
        await expect(topics).to_have_attribute("aria-expanded", "false")
        await expect(seen.page.locator("#topic-table")).to_be_hidden()
        await topics.press("Enter")
        await expect(seen.page.locator("#topic-table")).to_be_visible()
        await seen.page.locator(".sections a", has_text="Segments").click()
        await expect(seen.page.locator("#segment-table")).to_be_visible()
    async with opened(browser, canned.url) as seen:
        await expect(seen.page.locator("#topic-table")).to_be_visible()
        await expect(seen.page.locator("#topics .fold")).to_have_count(0)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
async def test_labels_of_arrows_cover_no_other_label(browser: Browser, canned: Canned, size: tuple[int, int]) -> None:
    racks = ("rack-a", "rack-b", "rack-c")
    canned.documents["overview"]["flows"] = [
        flow(kind, direction, client, serving, 10.0 ** (3 + place % 4), 0.05 * (len({client, serving, "rack-a"}) > 1))
        for place, (kind, direction, client, serving) in enumerate(
            itertools.product(("classic", "diskless"), ("produce", "fetch"), racks, racks)
        )
    ]
    async with opened(browser, canned.url, size) as seen:
        labels = seen.page.locator("#flow-picture .pill")
        await expect(labels).not_to_have_count(0)
        boxes = [await label.bounding_box() for label in await labels.all()]
        assert len(boxes) >= 8
        for one, other in itertools.combinations(filter(None, boxes), 2):
            apart_x = one["x"] + one["width"] <= other["x"] + 1 or other["x"] + other["width"] <= one["x"] + 1
            apart_y = one["y"] + one["height"] <= other["y"] + 1 or other["y"] + other["height"] <= one["y"] + 1
            assert apart_x or apart_y, (one, other)


async def test_each_proxy_of_the_fleet_has_a_link_to_its_page(browser: Browser, canned: Canned) -> None:
    first, second = canned.documents["fleet"]["proxies"][:2]
    first["admin"], second["admin"] = "10.0.0.5:19080", None
    async with opened(browser, canned.url) as seen:
        link = seen.page.locator("#proxies tbody tr").nth(0).get_by_role("link")
        await expect(link).to_have_attribute("href", "//10.0.0.5:19080/")
        await expect(seen.page.locator("#proxies tbody tr").nth(1).get_by_role("link")).to_have_count(0)


async def test_the_first_figures_are_the_sum_over_the_fleet(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        tiles = seen.page.locator("#fleet-tiles")
        await expect(tiles).to_contain_text("$473.04/month")
        await expect(tiles).to_contain_text("$3,942.00/month")
        await expect(tiles).to_contain_text("14.4 MB/s")
        await expect(tiles).to_contain_text("3 serving, racks: 3")
        top = await tiles.bounding_box()
        own = await seen.page.locator("#tiles").bounding_box()
        assert top is not None
        assert own is not None
        assert top["y"] < own["y"]
        canned.documents["fleet"]["sums"] |= {"processes": 4}
        await expect(tiles).to_contain_text("1 of 4 processes not in these sums yet")


async def test_headings_link_to_the_documentation(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        await expect(seen.page.locator("#fleet-tiles")).to_contain_text("month")
        await expect(seen.page.locator(".docs")).to_have_count(0)
        canned.documents["overview"]["docs_url"] = "https://docs.example.com/{page}.html"
        link = seen.page.get_by_role("link", name="docs about: Racks and flows")
        await expect(link).to_have_attribute("href", "https://docs.example.com/admin-page.html#racks-and-flows")
        await expect(seen.page.locator(".docs")).to_have_count(11)
        assert await violations(seen.page) == []


async def test_every_amount_of_money_is_first_one_for_a_month(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        sums = seen.page.locator("#money-body .sum")
        await expect(sums).to_have_text(["$78.84/month", "$657.00/month", "$73.00/month"])
        await expect(sums.last).to_have_attribute("title", "0.1 USD per hour")
        await expect(seen.page.locator("#money-body .card").last).to_contain_text("so far")


async def test_actions_need_the_token(browser: Browser, canned: Canned) -> None:
    async with opened(browser, canned.url) as seen:
        page, outcome = seen.page, seen.page.locator(".outcome")
        await page.get_by_role("button", name="Set log level").click()
        await expect(outcome).to_contain_text("Enter the token first")
        await page.get_by_label("Token").fill("wrong")
        await page.get_by_label("Log level").select_option("debug")
        await page.get_by_role("button", name="Set log level").click()
        await expect(outcome).to_have_text("Not done. 401: the token is wrong; read it from admin.token_file")
        await page.get_by_label("Token").fill(TOKEN)
        canned.forbidden = True
        await page.get_by_role("button", name="Set log level").click()
        await expect(outcome).to_have_text("Not done. 403: no token is set; set admin.token_file")
        canned.forbidden = False
        await page.get_by_role("button", name="Set log level").click()
        await expect(outcome).to_have_text("The log level is debug.")
        assert canned.changes == [("log-level", {"level": "debug"})]

        await page.get_by_role("button", name="Drain…").click()
        dialog = page.get_by_role("dialog", name="Drain this proxy?")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        assert len(canned.changes) == 1
        await page.get_by_role("button", name="Drain…").click()
        await dialog.get_by_role("button", name="Drain").click()
        await expect(outcome).to_have_text("The drain has begun.")
        assert canned.changes[1:] == [("drain", None)]
        stored = await page.evaluate("() => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert TOKEN not in stored
