"""Sets of jars: each is a directory with a `pom.xml` that names them and a `jars.lock` that pins them by SHA-256.

`kafka`, next to this file, is the set that brokers and Kafka's tools need. It is part of the wheel, so that the demo
can fetch it without a clone. The sets that only tests need are in `deploy/kafka`.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from proxy.demo import servers
from proxy.demo.errors import StackError

DOWNLOADS_AT_A_TIME = 8
DOWNLOAD_TIMEOUT_SECONDS = 60
DOWNLOAD_ATTEMPTS = 3
POM_NAMESPACE = {"m": "http://maven.apache.org/POM/4.0.0"}

Say = Callable[[str], None]
"""Receiver of progress, a line at a time."""


class FetchError(StackError):
    """Something could not be fetched; the text says what and why."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """One directory with a pom and a lock."""

    directory: Path

    @property
    def name(self) -> str:
        """Name of the directory that it is fetched into, below `servers.servers_directory()`."""
        return self.directory.name

    @property
    def pom(self) -> Path:
        """File that names the dependencies."""
        return self.directory / "pom.xml"

    @property
    def lock(self) -> Path:
        """File that pins every jar by its SHA-256."""
        return self.directory / "jars.lock"

    @property
    def is_there(self) -> bool:
        """True if exactly the jars of this lock have been fetched."""
        stamp = self._place / "made-from"
        return stamp.exists() and stamp.read_text() == self._stamp

    def fetch(self, say: Say) -> None:
        """Fetch the jars unless they are there; one process at a time. Raises FetchError."""
        if self.is_there:
            return
        place = self._place
        place.parent.mkdir(parents=True, exist_ok=True)
        with (place.parent / f".{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.is_there:
                self._fetch(say)

    def _fetch(self, say: Say) -> None:
        jars = self._read_lock()
        building = self._place.with_name(f"{self.name}.new")
        shutil.rmtree(building, ignore_errors=True)
        libs = building / "libs"
        libs.mkdir(parents=True)
        say(f"fetching {len(jars)} jars ({self.name})")
        if not (shutil.which("mvn") and shutil.which("java") and self._by_maven(libs, say)):
            by_jgo(jars, libs)
        self._check(jars, libs)
        (building / "made-from").write_text(self._stamp)
        shutil.rmtree(self._place, ignore_errors=True)
        building.rename(self._place)
        say(f"the jars are there ({self.name})")

    @property
    def _place(self) -> Path:
        return servers.servers_directory() / self.name

    @property
    def _stamp(self) -> str:
        return digest(self.pom) + digest(self.lock)

    def _by_maven(self, libs: Path, say: Say) -> bool:
        """Let Maven copy the jars. Return False, and say why, if it fails."""
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
        command = ["mvn", "-q", "-B", "-f", str(self.pom), *goal]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reasons = [line for line in done.stdout.splitlines() if "ERROR" in line]
            say(f"Maven failed ({reasons[0] if reasons else done.stderr.strip()}); fetching without it")
        return not done.returncode

    def _check(self, jars: dict[str, str], libs: Path) -> None:
        """Raise FetchError unless the directory holds the jars of the lock and nothing else."""
        expected = {file_name(coordinate): sha256 for coordinate, sha256 in jars.items()}
        there = {jar.name: digest(jar) for jar in libs.iterdir()}
        if wrong := sorted(name for name, _ in expected.items() ^ there.items()):
            names = ", ".join(dict.fromkeys(wrong))
            raise FetchError(f"jars are missing, not in {self.lock}, or other than it says: {names}")

    def write_lock(self, say: Say) -> None:
        """Resolve the dependencies of the pom as Maven does, and pin each by its SHA-256."""
        from jgo.maven import MavenContext

        cache = servers.servers_directory() / "lock.new"
        context = MavenContext(repo_cache=cache, timeout=DOWNLOAD_TIMEOUT_SECONDS)
        named = [(context.create_dependency(coordinate), alone) for coordinate, alone in self._dependencies()]
        roots = [dependency for dependency, alone in named if not alone]
        for root in roots:
            root.raw = True  # as in Maven, a dependency does not manage the versions of the others
        resolved = [part for group in context.resolver.resolve(roots) for part in group] if roots else []
        jars = {}
        for found in [*resolved, *(dependency for dependency, alone in named if alone)]:
            parts = (found.groupId, found.artifactId, found.version, found.classifier)
            coordinate = ":".join(part for part in parts if part)
            say(f"locking {coordinate}")
            jars[coordinate] = digest(found.artifact.resolve())
        self.lock.write_text("".join(f"{coordinate} {sha256}\n" for coordinate, sha256 in sorted(jars.items())))
        shutil.rmtree(context.repo_cache)

    def _dependencies(self) -> list[tuple[str, bool]]:
        """Return the coordinates in the pom, and whether each comes alone: without its own dependencies."""
        found = ElementTree.parse(self.pom).findall("m:dependencies/m:dependency", POM_NAMESPACE)
        parts = ("groupId", "artifactId", "version")
        return [
            (
                ":".join(dependency.findtext(f"m:{part}", "", POM_NAMESPACE) for part in parts),
                dependency.findtext("m:exclusions/m:exclusion/m:artifactId", "", POM_NAMESPACE) == "*",
            )
            for dependency in found
        ]

    def _read_lock(self) -> dict[str, str]:
        """Return SHA-256 by coordinate. Raises FetchError if the pom has been changed since."""
        jars = dict(line.split() for line in self.lock.read_text().splitlines())
        if missing := [coordinate for coordinate, _ in self._dependencies() if coordinate not in jars]:
            raise FetchError(f"{', '.join(missing)} of {self.pom} is not in {self.lock.name}; run `make lock-jars`")
        return jars


BROKERS = JarSet(Path(__file__).parent / "kafka")
"""Jars of the brokers and of Kafka's tools: the set of the demo."""


def by_jgo(jars: dict[str, str], libs: Path) -> None:
    """Download exactly the jars of the lock with jgo, bypassing any cache. Raises FetchError."""
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise FetchError("the Python package jgo is missing; install diskless-proxy[demo]") from error

    context = MavenContext(repo_cache=libs.parent / "cache", timeout=DOWNLOAD_TIMEOUT_SECONDS)

    def fetch(coordinate: str) -> None:
        artifact = context.create_dependency(coordinate).artifact
        for attempt in range(1, DOWNLOAD_ATTEMPTS + 1):
            try:
                artifact.resolve().rename(libs / file_name(coordinate))
                return
            except (OSError, RuntimeError) as error:
                if attempt == DOWNLOAD_ATTEMPTS:
                    remedy = "check the network, or install Maven and name a mirror in its settings"
                    raise FetchError(f"{coordinate} could not be downloaded: {error}; {remedy}") from error
                if artifact.cached_path:  # a part of the jar may be there
                    artifact.cached_path.unlink(missing_ok=True)

    with ThreadPoolExecutor(DOWNLOADS_AT_A_TIME) as pool:
        list(pool.map(fetch, jars))
    shutil.rmtree(context.repo_cache, ignore_errors=True)


def file_name(coordinate: str) -> str:
    """Return the jar's file name, as Maven names it. A coordinate may end with a classifier."""
    _, *parts = coordinate.split(":")
    return f"{'-'.join(parts)}.jar"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
