"""Install `diskless-proxy[demo]` from the built wheel into an empty environment, then run `diskless-proxy demo`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import __version__

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[3]
INSTALL_SECONDS = 600
DEMO_SECONDS = 300
LOAD_SECONDS = 3
DROPPED = ("PYTHONPATH", "DISKLESS_DEMO_SERVERS", "VIRTUAL_ENV")


def run(command: list[str], seconds: float, directory: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(2 * INSTALL_SECONDS + DEMO_SECONDS)
def test_the_demo_runs_from_the_wheel_without_a_clone(tmp_path: Path) -> None:
    cache, wheels, empty = tmp_path / "cache", tmp_path / "wheels", tmp_path / "environment"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    inherited = {name: value for name, value in os.environ.items() if name not in DROPPED}
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)]
    run(build, INSTALL_SECONDS, elsewhere, inherited)
    (wheel,) = wheels.glob("diskless_proxy-*.whl")
    assert wheel.name.startswith(f"diskless_proxy-{__version__}-")
    run([sys.executable, "-m", "venv", str(empty)], INSTALL_SECONDS, elsewhere, inherited)
    install = [str(empty / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
    run([*install, f"diskless-proxy[demo] @ {wheel.as_uri()}"], INSTALL_SECONDS, elsewhere, inherited)

    demo = [str(empty / "bin" / "diskless-proxy"), "demo", "--seconds", str(LOAD_SECONDS), "--json"]
    output = run(demo, DEMO_SECONDS, elsewhere, inherited | {"XDG_CACHE_HOME": str(cache)})

    seen = json.loads(output.splitlines()[-1])
    for kind in ("classic", "diskless"):
        assert seen[kind]["produced"] > 0
        assert (seen[kind]["lost"], seen[kind]["duplicated"]) == (0, 0)
    assert any((cache / "diskless-proxy" / __version__ / "kafka" / "libs").glob("kafka_2.13-*.jar"))
    assert not list(elsewhere.iterdir())
