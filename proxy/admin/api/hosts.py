"""The host names under which the admin port answers: a page of a foreign site must not read it.

A browser lets a site's script read what the site's own name answers. A site whose name is made to resolve to 127.0.0.1
would read an admin port there (DNS rebinding). Its requests carry the foreign name in `Host`. Scripts of another site
may also send requests whose answers they can't read: those carry `Origin`.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

_LOCALHOST = "localhost"


def is_loopback(host: str) -> bool:
    """Whether only this machine gets there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == _LOCALHOST


def host_of(header: str) -> str:
    """The name or address in a `Host` header, without port; empty where it can't be read."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def may_be_asked_for(header: str, listening_on: str, allowed: Collection[str]) -> bool:
    """Whether a request with this `Host` header is answered by a port that listens on `listening_on`.

    Who listens elsewhere than on loopback can't know by which names it is reached, and answers to any.
    """
    if not is_loopback(listening_on):
        return True
    host = host_of(header)
    return is_loopback(host) or host in {name.lower() for name in allowed}


def is_own_origin(origin: str, host_header: str) -> bool:
    """Whether an `Origin` header names the very host and port that the request was sent to."""
    try:
        parsed = urlsplit(origin)
    except ValueError:
        return False
    return parsed.scheme in ("http", "https") and parsed.netloc.lower() == host_header.lower()
