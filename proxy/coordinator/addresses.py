"""The forms of `redis.url`: one server, the servers of a cluster, or Sentinels that know the server."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379


class SentinelAddress(NamedTuple):
    """The parts of a URL that names Sentinels."""

    sentinels: list[tuple[str, int]]
    service: str
    """Name of the primary in the Sentinels' configuration; empty if the URL has none."""
    username: str | None
    """User at the Sentinels."""
    password: str | None
    server_url: str
    """URL of the primary as redis-py reads it, except that host and port are a Sentinel's."""


def kind_of(url: str) -> str:
    """Return `cluster` or `sentinel`; empty for one server."""
    return urlsplit(url).scheme.partition("+")[2]


def server_addresses(url: str, default_port: int = DEFAULT_PORT) -> list[tuple[str, int]]:
    """Return hosts and ports. Raises ValueError for a port that is not a number."""
    names = urlsplit(url).netloc.rpartition("@")[2].split(",")
    addresses = []
    for name in names:
        parts = urlsplit(f"//{name}")
        if not parts.hostname:
            raise ValueError(f"names no host in {name!r}")
        addresses.append((parts.hostname, parts.port or default_port))
    return addresses


def single_url(url: str) -> str:
    """Return a URL of the first server, as redis-py reads it."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    scheme = parts.scheme.partition("+")[0]
    return urlunsplit(parts._replace(scheme=scheme, netloc=user + at + hosts.partition(",")[0]))


def sentinel_address(url: str) -> SentinelAddress:
    """Return the parts of `redis+sentinel://user:password@host:port,host:port/service/db?sentinel_password=…`.

    Raises ValueError as `server_addresses` does.
    """
    parts = urlsplit(single_url(url))
    service, _, database = parts.path.lstrip("/").partition("/")
    query = dict(parse_qsl(parts.query))
    username, password = query.pop("sentinel_username", None), query.pop("sentinel_password", None)
    server = parts._replace(path=f"/{database}", query=urlencode(query))
    return SentinelAddress(
        server_addresses(url, DEFAULT_SENTINEL_PORT), service, username, password, urlunsplit(server)
    )
