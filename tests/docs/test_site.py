"""`make docs`: the site is built without a warning, and fetches nothing from other sites."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

RESOURCE = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\s\">]+)")
STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\s\"')]+)")


@pytest.mark.timeout(300)
def test_the_site_is_built_and_fetches_nothing(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs is not installed: the extra docs has it, with which `make setup` makes .venv")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    pages = list(site.rglob("*.html"))
    sources = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert len(pages) > len(sources)
    assert (site / "search" / "search_index.json").exists()
    fetched = {found for page in pages for found in RESOURCE.findall(page.read_text())}
    fetched |= {found for style in site.rglob("*.css") for found in STYLE.findall(style.read_text())}
    assert not fetched
    for page in ("cost", "scale"):
        text = (site / f"{page}.html").read_text()
        assert text.index('<script src="assets/form.js"') < text.index(f'<script src="assets/{page}.js"')
