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
    assert f"\n## {__version__} " in (ROOT / "CHANGELOG.md").read_text().replace("[", "").replace("]", "")


def test_images_are_named_by_the_version() -> None:
    named = {path: set(IMAGE.findall(path.read_text())) for path in NAMING}
    assert sum(bool(versions) for versions in named.values()) > 4
    assert not {path: versions for path, versions in named.items() if versions - {__version__}}
