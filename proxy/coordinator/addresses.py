"""The forms of `redis.url`: one server, the servers of a cluster, or Sentinels that know the server."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

DEFAULT_PORT = 6379


def kind_of(url: str) -> str:
    """Return `cluster` or `sentinel`; empty for one server."""
    return urlsplit(url).scheme.partition("+")[2]


def server_addresses(url: str) -> list[tuple[str, int]]:
    """Return hosts and ports. Raises ValueError for a port that is not a number."""
    names = urlsplit(url).netloc.rpartition("@")[2].split(",")
    addresses = []
    for name in names:
        parts = urlsplit(f"//{name}")
        if not parts.hostname:
            raise ValueError(f"names no host in {name!r}")
        addresses.append((parts.hostname, parts.port or DEFAULT_PORT))
    return addresses


def single_url(url: str) -> str:
    """Return a URL of the first server, as redis-py reads it."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    scheme = parts.scheme.partition("+")[0]
    return urlunsplit(parts._replace(scheme=scheme, netloc=user + at + hosts.partition(",")[0]))
