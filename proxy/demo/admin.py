"""The admin ports of the stack's proxies, asked over HTTP."""

from __future__ import annotations

import http.client
from contextlib import closing
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 2.0


def get(admin_url: str, path: str, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[int, str]:
    """Status and text of `path` at `http://host:port`; where nothing answers status 0, and the reason as a comment.

    Straight there, whatever `http_proxy` says: a web proxy of the environment knows nothing of loopback addresses.
    """
    try:
        with closing(http.client.HTTPConnection(urlsplit(admin_url).netloc, timeout=timeout_seconds)) as connection:
            connection.request("GET", path, headers={"Connection": "close"})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return 0, f"# {error}"
