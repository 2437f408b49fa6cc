"""Sets of jars: each is a directory with a `pom.xml` that names them and a `jars.lock` that pins them by SHA-256.

`deploy/kafka` itself is what brokers and tools need, and comes as `.servers/kafka`; each directory in it is needed by
tests only, and comes under its own name.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from proxy.demo import servers

KAFKA = Path(__file__).resolve().parents[1] / "deploy" / "kafka"
SERVERS = servers.servers_directory()
DOWNLOADS_AT_A_TIME = 8
DOWNLOAD_TIMEOUT_SECONDS = 60
DOWNLOAD_ATTEMPTS = 3
POM_NAMESPACE = {"m": "http://maven.apache.org/POM/4.0.0"}


class FetchError(Exception):
    """Something could not be fetched; the text says what and why."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """One directory with a pom and a lock."""

    directory: Path

    @property
    def name(self) -> str:
        """Of the directory under `.servers`."""
        return self.directory.name

    @property
    def pom(self) -> Path:
        """Which versions."""
        return self.directory / "pom.xml"

    @property
    def lock(self) -> Path:
        """Every jar, with its SHA-256."""
        return self.directory / "jars.lock"

    def fetch(self) -> None:
        """Bring the jars into `.servers/<name>/libs`, unless they are there. Raises FetchError."""
        stamp, wanted = SERVERS / self.name / "made-from", digest(self.pom) + digest(self.lock)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        jars = self._read_lock()
        building = SERVERS / f"{self.name}.new"
        shutil.rmtree(building, ignore_errors=True)
        libs = building / "libs"
        libs.mkdir(parents=True)
        say(f"fetching {len(jars)} jars ({self.name})")
        if not (shutil.which("mvn") and shutil.which("java") and self._by_maven(libs)):
            by_jgo(jars, libs)
        self._check(jars, libs)
        (building / "made-from").write_text(wanted)
        shutil.rmtree(SERVERS / self.name, ignore_errors=True)
        building.rename(SERVERS / self.name)
        say(f"the jars are there ({self.name})")

    def _by_maven(self, libs: Path) -> bool:
        """Let Maven copy the jars; False, and a line that says so, where it fails."""
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

    def write_lock(self) -> None:
        """Resolve the dependencies of the pom as Maven does, and pin each by its SHA-256."""
        from jgo.maven import MavenContext

        context = MavenContext(repo_cache=SERVERS / "lock.new", timeout=DOWNLOAD_TIMEOUT_SECONDS)
        named = [(context.create_dependency(coordinate), alone) for coordinate, alone in self._dependencies()]
        roots = [dependency for dependency, alone in named if not alone]
        for root in roots:
            root.raw = True  # as in Maven, a dependency does not manage the versions of the others
        resolved = [part for group in context.resolver.resolve(roots) for part in group] if roots else []
        jars = {}
        for found in [*resolved, *(dependency for dependency, alone in named if alone)]:
            say(f"locking {found.groupId}:{found.artifactId}:{found.version}")
            jars[f"{found.groupId}:{found.artifactId}:{found.version}"] = digest(found.artifact.resolve())
        self.lock.write_text("".join(f"{coordinate} {sha256}\n" for coordinate, sha256 in sorted(jars.items())))
        shutil.rmtree(context.repo_cache)

    def _dependencies(self) -> list[tuple[str, bool]]:
        """The coordinates in the pom, and whether each comes alone: without those that it depends on."""
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
        """Coordinate to SHA-256. Raises FetchError where the pom has been changed since."""
        jars = dict(line.split() for line in self.lock.read_text().splitlines())
        if missing := [coordinate for coordinate, _ in self._dependencies() if coordinate not in jars]:
            raise FetchError(f"{', '.join(missing)} of {self.pom} is not in {self.lock.name}; run `make lock-jars`")
        return jars


BROKERS = JarSet(KAFKA)
"""Needed by the demo."""


def for_tests() -> list[JarSet]:
    """The sets that only tests need."""
    return [JarSet(pom.parent) for pom in sorted(KAFKA.glob("*/pom.xml"))]


def fetch_all(sets: list[JarSet]) -> None:
    """One after the other: runs of Maven at the same time would write into one repository. Raises FetchError."""
    for jar_set in sets:
        jar_set.fetch()


def by_jgo(jars: dict[str, str], libs: Path) -> None:
    """Download exactly the jars of the lock, through jgo, and past any cache."""
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=libs.parent / "cache", timeout=DOWNLOAD_TIMEOUT_SECONDS)

    def fetch(coordinate: str) -> None:
        artifact = context.create_dependency(coordinate).artifact
        for attempt in range(1, DOWNLOAD_ATTEMPTS + 1):
            try:
                artifact.resolve().rename(libs / file_name(coordinate))
                return
            except (OSError, RuntimeError) as error:
                if attempt == DOWNLOAD_ATTEMPTS:
                    raise FetchError(f"{coordinate} could not be downloaded: {error}") from error
                if artifact.cached_path:  # a part of the jar may be there
                    artifact.cached_path.unlink(missing_ok=True)

    with ThreadPoolExecutor(DOWNLOADS_AT_A_TIME) as pool:
        list(pool.map(fetch, jars))
    shutil.rmtree(context.repo_cache, ignore_errors=True)


def file_name(coordinate: str) -> str:
    """The jar's name, as Maven gives it."""
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def say(text: str) -> None:
    """Tell what is being done."""
    print(f"setup: {text}", flush=True)
