"""The units pass systemd's own tools, and fit the program's settings."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from proxy.config import Limits

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
PROXY = UNITS / "diskless-proxy@.service"
PIPELINE = UNITS / "diskless-pipeline@.service"
EXPOSURE_AT_MOST = {PROXY: 14, PIPELINE: 15}
"""Maximum exposure of 100; systemd calls up to 20 "OK". The rest comes from the network, readable files, and Java's
JIT."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")


def offline_supported() -> bool:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        return False
    help_text = subprocess.run([tool, "--help"], capture_output=True, text=True, check=False)
    return "--offline" in help_text.stdout and "--threshold" in help_text.stdout


def in_place(unit: Path, directory: Path) -> Path:
    """Create an instance of the unit, with programs and users that this machine has."""
    made = directory / unit.name.replace("@", "@merge")
    made.write_text(
        unit.read_text()
        .replace("/opt/diskless-proxy/bin/diskless-proxy", "/bin/true")
        .replace("=diskless-proxy\n", "=root\n")
    )
    return made


def service(unit: Path) -> configparser.SectionProxy:
    read = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(unit.read_text())
    return read["Service"]


@needs_systemd
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.name)
def test_verify(unit: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", in_place(unit, tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.skipif(not offline_supported(), reason="systemd-analyze security has no --offline here (systemd 250)")
@pytest.mark.parametrize("unit", EXPOSURE_AT_MOST, ids=lambda path: path.name)
def test_the_exposure_is_low(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE_AT_MOST[unit]}"]
    done = subprocess.run([*command, unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_the_proxy_runs_its_own_file_and_drains() -> None:
    unit = service(PROXY)
    assert unit["ExecStart"].endswith("/diskless-proxy run --config /etc/diskless-proxy/%i.yaml")
    assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert unit["KillMode"] == "mixed"
    assert int(unit["TimeoutStopSec"]) >= Limits().drain_timeout_ms / 1000 + 10
    assert int(unit["LimitNOFILE"]) >= 30_000, "three for each of 10,000 connections"
