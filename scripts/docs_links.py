"""Hooks of mkdocs (`make docs`): the navigation for pages without a place, and links that leave `docs/`.

README is the landing page of the site, too. As files, the pages link to anything in this folder. In the built site,
results of benchmarks are included as pages; links to other files become plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BROUGHT_ALONG = "benchmarks/results/*.md"
DECISIONS = "decisions"
LANDING = "index.md"
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Order decisions by their number; pages without a place come last, so that none is left out."""
    nav: list[Any] = list(config.nav or [])
    named = set(_pages(nav))
    decisions = sorted(f"{DECISIONS}/{path.name}" for path in (DOCS / DECISIONS).glob("[0-9]*.md"))
    others = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
    more = [page for page in others if page not in named and not page.startswith(f"{DECISIONS}/")]
    results = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(BROUGHT_ALONG))
    nav += [{"Further pages": more}] if more else []
    nav += [{"Measured": results}, {"Decisions": [f"{DECISIONS}/README.md", *decisions]}]
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the included pages, and README as the first one."""
    files.append(File.generated(config, LANDING, abs_src_path=str(ROOT / "README.md")))
    for path in sorted(ROOT.glob(BROUGHT_ALONG)):
        files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave `docs/` into links to included pages, or into plain text."""
    here = PurePosixPath(page.file.src_uri).parent
    if page.file.src_uri == LANDING:
        markdown = LINK.sub(_from_docs, markdown)

    def turned(link: re.Match[str]) -> str:
        text, target = link.groups()
        path, hash_sign, anchor = target.partition("#")
        if not path or "://" in target:
            return link.group()
        leads_to = os.path.normpath(f"docs/{here}/{path}")
        if leads_to.startswith("docs/"):
            return link.group()
        if files.get_file_from_path(leads_to) is None:
            return text
        return f"[{text}]({os.path.relpath(leads_to, str(here))}{hash_sign}{anchor})"

    return LINK.sub(turned, markdown)


def _from_docs(link: re.Match[str]) -> str:
    """Return a link of README as it reads from `docs/`."""
    text, target = link.groups()
    if "://" in target or target.startswith("#"):
        return link.group()
    return f"[{text}]({os.path.relpath(target, 'docs')})"


def _pages(nav: Any) -> list[str]:
    """Return all pages that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [page for one in inner for page in _pages(one)]
