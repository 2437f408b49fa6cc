"""A server that speaks the protocol of Azure Blob Storage: Azurite, from npm.

It is installed into `.servers/azurite` when a test first needs it, by the lock in tests/integration/storage/azurite.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.servers import servers_directory
from proxy.demo.waiting import wait_until

LOCK = Path(__file__).parents[1] / "integration" / "storage" / "azurite"
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own account, which its documentation names: no secret."""
BUCKET = "diskless"
_READY_S = 60.0


@contextmanager
def running(directory: Path, port: int) -> Iterator[str]:
    """Yield the URL of an Azure Blob Storage account that has one container."""
    program = _installed() / "node_modules" / ".bin" / "azurite-blob"
    options = ["--blobHost", HOST, "--blobPort", str(port), "--location", str(directory / "azurite"), "--silent"]
    url = f"http://{HOST}:{port}/{ACCOUNT}"
    with _running("azurite", [str(program), *options, "--skipApiVersionCheck", "--disableTelemetry"], directory):
        _until_made(_create_container(url))
        yield url


@contextmanager
def _running(name: str, command: list[str], directory: Path) -> Iterator[None]:
    server = Process(name, command, directory / f"{name}.log")
    server.start()
    try:
        yield
    finally:
        server.kill()


def _until_made(request: urllib.request.Request) -> None:
    """Send a request that creates something, again and again until the server takes it."""

    def complaint() -> str:
        try:
            with urllib.request.urlopen(request, timeout=5):
                return ""
        except OSError as error:
            return str(error)

    wait_until(complaint, _READY_S, Event(), lambda reason: f"{request.full_url}: {reason}")


def _create_container(url: str) -> urllib.request.Request:
    """Return the request that creates the container, signed with the account's key (Shared Key)."""
    headers = {"x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "x-ms-version": "2021-12-02"}
    signed_headers = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    resource = f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    text = "PUT" + "\n" * 12 + signed_headers + resource
    signature = base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256)).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    return urllib.request.Request(f"{url}/{BUCKET}?restype=container", method="PUT", headers=headers)


def _installed() -> Path:
    """Return the folder with Azurite; the first process that needs it installs it."""
    place = servers_directory() / "azurite"
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted, stamp = (LOCK / "package-lock.json").read_bytes(), place / "made-from"
        if not stamp.exists() or stamp.read_bytes() != wanted:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(LOCK / name, place)
            subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=place, check=True)
            stamp.write_bytes(wanted)
    return place
