"""Read the JSON of a proxy's admin port over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def ask(url: str, path: str, method: str = "GET", token: str = "", body: Any = None) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of `/api/<path>`."""
    request = urllib.request.Request(f"{url}/api/{path}", method=method)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    if body is not None:
        request.data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def ask_ok(url: str, path: str) -> dict[str, Any]:
    """Return the body, and require status 200."""
    status, answer = ask(url, path)
    assert status == 200, answer
    return answer
