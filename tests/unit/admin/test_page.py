"""The files of the admin page, and how they are served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from proxy.admin.page import POLICY, STATIC, add_page, page_files

REFERENCE = re.compile(r"""(?:href|src)="(?!#|api/|metrics)([^"]+)"|from "\./([^"]+)"|url\(([^)]+)\)""")
LARGEST_FILE_LINES = 400
DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
async def url():
    app = web.Application()
    add_page(app)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_every_file_is_served_with_its_type_and_the_policy(url: str) -> None:
    async with ClientSession() as session:
        for path, (content_type, content) in page_files().items():
            async with session.get(url + path) as answer:
                assert (answer.status, await answer.read()) == (200, content), path
                assert answer.headers["Content-Type"] == content_type
                assert answer.headers["Content-Security-Policy"] == POLICY
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/page/", "/page/../__init__.py", "/page/%2e%2e/__init__.py", "/page//etc/passwd", "/page/__init__.py"]
)
async def test_no_other_file_is_served(url: str, path: str) -> None:
    from yarl import URL

    async with ClientSession() as session, session.get(URL(url + path, encoded=True)) as answer:
        assert answer.status == 404


def test_every_reference_has_a_file() -> None:
    files = page_files()
    referred = {
        f"/page/modules/{module}" if module else f"/{path or url}"
        for _, content in files.values()
        for path, module, url in REFERENCE.findall(content.decode())
    }
    assert referred >= {"/page/modules/main.js", "/page/style/base.css", "/page/modules/plot.js"}
    assert referred <= set(files)
    assert set(files) - referred == {"/"}, "files that nothing needs"


def test_nothing_is_inline_or_from_elsewhere() -> None:
    for path, (_, content) in page_files().items():
        text = content.decode()
        assert "innerHTML" not in text, path
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=\"|\son\w+=\"|\beval\(|new Function", text), path
        links = set(re.findall(r"https?://[^\s\"']+", text)) - {"http://www.w3.org/2000/svg"}
        assert links == set(), path
        assert len(text.splitlines()) <= LARGEST_FILE_LINES, path


def test_headings_link_to_sections_that_exist() -> None:
    links = re.findall(r'data-docs="([^"#]+)#?([^"]*)"', (STATIC / "index.html").read_text())
    assert len(links) > 10
    for page, section in links:
        headings = re.findall(r"^#+ (.*)$", (DOCS / f"{page}.md").read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not section or section in anchors, (page, section)


def test_headings_with_documentation_have_a_sentence_about_their_section() -> None:
    page = (STATIC / "index.html").read_text()
    headings = re.findall(
        r'<h[23] id="([a-z-]+)"[^>]* data-docs=[^>]*>[^<]*</h[23]>\s*(<p class="about">[^<]*\.</p>)?', page
    )
    assert [heading for heading, about in headings if not about] == ["actions-heading"]


def test_modules_read_no_markup_of_others() -> None:
    modules = list(STATIC.rglob("*.js"))
    assert len(modules) > 10
    for path in modules:
        assert not re.search(r"insertAdjacentHTML|outerHTML|document\.write|setHTML|DOMParser", path.read_text()), path
