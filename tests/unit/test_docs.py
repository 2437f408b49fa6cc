"""Pages that follow from the code are current, and links between pages lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.replicas.choice import LeaderReason

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_generated_pages_are_current() -> None:
    check = [sys.executable, "scripts/generate_docs.py", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:  # tests/docs/test_links.py looks at those
            assert (page.parent / target).exists(), f"{target} is not there"


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text()
    for record in folder.glob("[0-9]*.md"):
        assert f"]({record.name})" in listed
        title = record.read_text().splitlines()[0].removeprefix("# ")
        assert f"[{title}]" in listed


def test_every_reason_for_a_read_from_the_leader_is_explained() -> None:
    page = (ROOT / "docs" / "operations" / "leader-reads.md").read_text()
    assert re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE) == [reason.value for reason in LeaderReason]
