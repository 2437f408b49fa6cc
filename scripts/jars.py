"""The sets of jars that `make setup` fetches: that of the brokers, and those of `deploy/kafka` that only tests need."""

from __future__ import annotations

from pathlib import Path

from proxy.demo import servers
from proxy.demo.jars import BROKERS, FetchError, JarSet, digest

__all__ = ["BROKERS", "SERVERS", "FetchError", "JarSet", "digest", "fetch_all", "for_tests", "say"]

KAFKA = Path(__file__).resolve().parents[1] / "deploy" / "kafka"
SERVERS = servers.servers_directory()


def for_tests() -> list[JarSet]:
    """Return the sets that only tests need."""
    return [JarSet(pom.parent) for pom in sorted(KAFKA.glob("*/pom.xml"))]


def fetch_all(sets: list[JarSet]) -> None:
    """Fetch one set after the other: two runs of Maven would write into one repository. Raises FetchError."""
    for jar_set in sets:
        jar_set.fetch(say)


def say(text: str) -> None:
    """Print what is being done."""
    print(f"setup: {text}", flush=True)
