"""The admin port of a running proxy, as commands read it, and its address."""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.console import config_file

DEFAULT_URL = "http://127.0.0.1:19080"
_LARGEST_ANSWER_BYTES = 16 << 20
_TIMEOUT_S = 10.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Straight there: a web proxy of the environment knows nothing of loopback addresses and pods."""

AdminUrl = Annotated[
    str | None,
    typer.Option(
        "--admin",
        metavar="URL",
        help=f"The admin port of a proxy, such as {DEFAULT_URL}, which is asked where neither is given.",
    ),
]
AdminConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="The settings file of the proxy, which says where its admin port is; that of DISKLESS_PROXY_CONFIG, or "
        "/etc/diskless-proxy/proxy.yaml if there is one, where neither option is given.",
    ),
]


class AdminPortError(Exception):
    """The admin port does not answer as one of this release does; one line with cause and remedy."""


def admin_url(admin: str | None, config: Path | None) -> str:
    """Return the address of the admin port that the options name. Raises AdminPortError and ConfigError."""
    if admin is not None and config is not None:
        raise AdminPortError("both --admin and --config are given; give only one")
    if config is not None:
        from proxy.config import load_settings

        settings = load_settings(config)
        if not settings.admin.port:
            raise AdminPortError(f"{config} lets the system pick admin.port; name the address with --admin")
        host = settings.admin.host
        host = "127.0.0.1" if host in ("0.0.0.0", "") else "::1" if host == "::" else host
        return f"http://[{host}]:{settings.admin.port}" if ":" in host else f"http://{host}:{settings.admin.port}"
    if admin is None:
        if named := os.environ.get(config_file.CONFIG_VARIABLE):
            return admin_url(None, Path(named))
        if config_file.DEFAULT_CONFIG.exists():
            return admin_url(None, config_file.DEFAULT_CONFIG)
    url = (admin or DEFAULT_URL).rstrip("/")
    if "://" not in url:
        url = f"http://{url}"
    if not re.fullmatch(r"https?://[^/?#\s]+", url):
        raise AdminPortError(f"--admin {admin} is not an address such as {DEFAULT_URL}; leave out paths")
    return url


class AdminPort:
    """One proxy's, at a URL without path."""

    def __init__(self, url: str, timeout_s: float = _TIMEOUT_S) -> None:
        self.url = url
        self._timeout_s = timeout_s

    def get(self, resource: str, **query: str | int) -> dict[str, Any]:
        """Return the JSON of `/api/<resource>`. Raises AdminPortError."""
        asked = {name: value for name, value in query.items() if value != ""}
        address = f"{self.url}/api/{resource}?{urllib.parse.urlencode(asked)}".rstrip("?")
        try:
            with _OPENER.open(address, timeout=self._timeout_s) as response:
                text = response.read(_LARGEST_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise AdminPortError(self._refused(error)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AdminPortError(self._unreachable(error)) from error
        try:
            document = json.loads(text)
        except ValueError as error:
            raise AdminPortError(self._stranger()) from error
        if not isinstance(document, dict):
            raise AdminPortError(self._stranger())
        return document

    @contextmanager
    def as_expected(self) -> Iterator[None]:
        """Turn missing or unexpected values in an answer, which another release may give, into AdminPortError."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise AdminPortError(self._of_another_release()) from error

    def _of_another_release(self) -> str:
        return (
            f"what answers at {self.url} is a proxy of another release, or something else; see the proxy's admin.port, "
            "and that it is as new as this command"
        )

    def _refused(self, error: urllib.error.HTTPError) -> str:
        try:
            answer = json.loads(error.read(_LARGEST_ANSWER_BYTES))["error"]
        except (ValueError, LookupError, TypeError, OSError):
            answer = None
        if error.code == 404:
            return (
                f"{self.url} has no /api: a proxy of an older release, or something else listens there; see the "
                "proxy's admin.port, and that it is as new as this command"
            )
        return f"{self.url} answers {error.code}" + (f": {answer}" if answer else "; see the proxy's log")

    def _unreachable(self, error: Exception) -> str:
        reason = getattr(error, "reason", error)
        if isinstance(error, http.client.HTTPException | ConnectionResetError) or isinstance(
            reason, ConnectionResetError
        ):
            return self._stranger()
        text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason) or "no answer"
        return f"no proxy answers at {self.url} ({text}); start it, or name its admin port with --admin or --config"

    def _stranger(self) -> str:
        return (
            f"what answers at {self.url} is no admin port (is it a port for Kafka clients?); name the one of "
            "admin.port with --admin"
        )
