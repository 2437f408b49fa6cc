"""The sample of a rejection on the page about upgrades has the format that this release reads."""

from __future__ import annotations

from proxy import __version__
from proxy.coordinator.layout import FORMAT_VERSION
from tests.docs.blocks import ROOT


def test_the_sample_names_the_present_format() -> None:
    page = (ROOT / "docs" / "upgrade.md").read_text()
    assert (
        f"data of format {FORMAT_VERSION + 1}, but this release ({__version__}) reads only format {FORMAT_VERSION};"
        in page
    )
