"""The wheel, the image and the chart carry the licence and the version that the project has."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import yaml

from proxy import __version__

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "diskless-proxy"
LICENSE = "Apache-2.0"
LICENSE_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the licence's text as the Apache Software Foundation publishes it."""
IMAGE = re.compile(r"\bdiskless-proxy:(\d+\.\d+\.\d+)\b")
NAMING = [
    path
    for folder in ("deploy", "docs")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.is_file() and path.suffix in {".yaml", ".tpl", ".md", ""} and not path.is_symlink()
]


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_the_licence_is_whole_and_travels_with_the_chart() -> None:
    for path in (ROOT / "LICENSE", CHART / "LICENSE"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == LICENSE_SHA256, path


def test_the_wheel_the_image_and_the_chart_name_the_licence() -> None:
    assert (project()["license"], project()["license-files"]) == (LICENSE, ["LICENSE"])
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]["licenses"] == LICENSE
    image = (ROOT / "deploy" / "container" / "Containerfile").read_text()
    assert f'org.opencontainers.image.licenses="{LICENSE}"' in image
    assert f"SPDX: {LICENSE})" in (ROOT / "README.md").read_text()


def test_the_version_has_one_place() -> None:
    """`proxy/__init__.py`; the build reads it there, and everything else is held to it."""
    assert "version" not in project()
    assert "version" in project()["dynamic"]  # type: ignore[operator]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    assert re.findall(r"^## \[(.+?)\] - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == __version__


def test_images_are_named_by_the_version() -> None:
    named = {path: set(IMAGE.findall(path.read_text())) for path in NAMING}
    assert sum(bool(versions) for versions in named.values()) > 4
    assert not {path: versions for path, versions in named.items() if versions - {__version__}}


def test_the_workflow_runs_parts_that_there_are() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    job = workflow["jobs"]["part"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    parts = set(re.findall(r'"([a-z-]+)"', job["strategy"]["matrix"]["part"]))
    assert {"lint", "test", "test-all"} <= parts <= targets
    assert job["steps"][-1]["run"] == ".ci/run ${{ matrix.part }}"


def test_updates_are_looked_for_where_something_is() -> None:
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    folders = {
        update["package-ecosystem"]: [
            ROOT / folder.lstrip("/") for folder in update.get("directories") or [update["directory"]]
        ]
        for update in updates
    }
    files = {"docker": "Containerfile", "maven": "pom.xml", "gomod": "go.mod", "npm": "package-lock.json"}
    assert set(folders) == {*files, "github-actions"}
    assert [folder for name, file in files.items() for folder in folders[name] if not (folder / file).exists()] == []


def test_forms_for_issues_have_what_they_need() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml"))
    assert len(forms) == 2
    for form in forms:
        found = yaml.safe_load(form.read_text())
        assert {"name", "description", "body"} <= set(found)
        fields = [field for field in found["body"] if field["type"] != "markdown"]
        assert len({field["id"] for field in fields}) == len(fields)
        assert all(field["attributes"]["label"] for field in fields)
