"""The host names under which the admin port answers: a page of a foreign site must not read it.

A browser lets a site's script read the answers of the site's own host name. If that name resolves to 127.0.0.1, the
script could read an admin port there (DNS rebinding). Such requests carry the foreign name in `Host`. Scripts of
another site may also send requests whose answers they can't read. Such requests carry `Origin`.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

_LOCALHOST = "localhost"


def is_loopback(host: str) -> bool:
    """True if the host is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == _LOCALHOST


def host_of(header: str) -> str:
    """Return the name or address in a `Host` header, without port; empty if the header can't be parsed."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def may_be_asked_for(header: str, listening_on: str, allowed: Collection[str]) -> bool:
    """True if a port that listens on `listening_on` answers a request with this `Host` header.

    A port that does not listen on loopback can't know its own names, and answers any `Host`.
    """
    if not is_loopback(listening_on):
        return True
    host = host_of(header)
    return is_loopback(host) or host in {name.lower() for name in allowed}


def is_own_origin(origin: str, host_header: str) -> bool:
    """True if an `Origin` header names the host and port that the request was sent to."""
    try:
        parsed = urlsplit(origin)
    except ValueError:
        return False
    return parsed.scheme in ("http", "https") and parsed.netloc.lower() == host_header.lower()
