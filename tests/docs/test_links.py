"""Links between pages have a target, including the heading; links to other sites are well formed."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.blocks import ROOT, anchor, anchors, links, pages

WITH_RESULTS = [*pages(), *sorted(ROOT.glob("benchmarks/results/*.md"))]


@pytest.mark.parametrize("page", WITH_RESULTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_a_target(page: Path) -> None:
    wrong = []
    for link in links(page):
        url = urlsplit(link)
        if url.scheme:
            if url.scheme != "https" or "." not in url.netloc:
                wrong.append(f"{link}: an address elsewhere is https://HOST/…")
            continue
        target = (page.parent / url.path).resolve() if url.path else page
        if not target.exists():
            wrong.append(f"{link}: {url.path} is not there")
        elif not target.is_relative_to(ROOT):
            wrong.append(f"{link} leaves the project")
        elif url.fragment and target.suffix == ".md" and url.fragment not in anchors(target):
            wrong.append(f"{link}: no heading of {url.path or 'this page'} is #{url.fragment}")
    assert not wrong, "\n".join([f"{page.relative_to(ROOT)}:", *wrong])


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("KIP-1163's API", "kip-1163s-api"),
        ("What crosses racks, and what it costs", "what-crosses-racks-and-what-it-costs"),
        ('`format("diskless")`: Spark reads', "formatdiskless-spark-reads"),
        ("[Linked](other.md) here", "linked-here"),
    ],
)
def test_anchors_are_those_of_readers(heading: str, name: str) -> None:
    assert anchor(heading) == name
