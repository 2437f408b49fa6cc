"""The parts of the dashboard's picture."""

from __future__ import annotations

import json
import re

from tests.deploy.dashboard_picture import ROWS, SOURCE, rows
from tests.support.dashboard import DASHBOARD, PANELS

KINDS = re.compile(r"const KINDS: .* = \{(.*)\};")


def test_the_lock_pins_everything_and_names_no_registry() -> None:
    wanted = json.loads((SOURCE / "package.json").read_text())["dependencies"]
    lock = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    root = lock.pop("")
    assert root["dependencies"] == wanted
    assert {name: lock[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all(package["integrity"].startswith("sha512-") for package in lock.values())
    assert not any("resolved" in package for package in lock.values())


def test_every_kind_of_panel_can_be_drawn() -> None:
    (kinds,) = KINDS.findall((SOURCE / "picture.tsx").read_text())
    assert {panel["type"] for panel in PANELS} == set(re.findall(r"(\w+):", kinds))


def test_the_dashboard_has_the_rows_of_the_docs() -> None:
    shown = rows(DASHBOARD["panels"], ROWS)
    assert [panel["title"] for panel in shown if panel["type"] == "row"] == list(ROWS)
    assert "Where bytes cross, by racks" in {panel["title"] for panel in shown}
