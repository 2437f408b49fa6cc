"""The information file of `diskless-proxy demo --serve`: where everything is, for `demo hello` and for scripts."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from proxy.demo import s3
from proxy.demo.stack import Stack


def default_path() -> Path:
    """Return the default path of the file, for `demo --serve` and `demo hello`: one for each user."""
    return Path(tempfile.gettempdir()) / f"diskless-proxy-demo-{os.getuid()}.json"


def describe(stack: Stack) -> dict[str, Any]:
    """Addresses (`host:port`), files and process IDs of a stack that runs.

    With S3 storage there is an entry `s3` with the endpoint and its keys besides.
    """
    described: dict[str, Any] = {
        "brokers": {
            str(node): {"address": stack.kafka.address(node), "rack": rack} for node, rack in stack.kafka.racks.items()
        },
        "proxies": {
            rack: {"bootstrap": proxy.bootstrap, "admin": proxy.admin_address, "config": str(proxy.config_path)}
            for rack, proxy in stack.proxies.items()
            if stack.options.proxies
        },
        "redis": stack.redis.address,
        "storage": stack.storage_url,
        "pids": {name: process.pid for name, process in stack.processes.items()},
    }
    if stack.s3:
        described["s3"] = {
            "endpoint_url": stack.s3.endpoint_url,
            "region": s3.REGION,
            "access_key_id": s3.ACCESS_KEY_ID,
            "secret_access_key": s3.SECRET_ACCESS_KEY,
        }
    return described


def where_to_look(stack: Stack) -> list[str]:
    """Return a line for each proxy: its admin page, and the settings file that it runs with."""
    return [
        f"admin page of {name}: {proxy.admin_url}/    its settings: {proxy.config_path}"
        for name, proxy in stack.proxies.items()
        if stack.options.proxies
    ]


def lives(described: dict[str, Any]) -> bool:
    """Return whether all parts of the stack that is described are alive."""
    pids = described.get("pids", {}).values()
    return bool(pids) and all(_is_alive(pid) for pid in pids)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def clear(path: Path) -> None:
    """Remove what another run has left behind; a file of a stack that is alive stays."""
    try:
        if lives(json.loads(path.read_text())):
            return
    except (OSError, ValueError, AttributeError, TypeError):
        pass  # not a description, so nothing is alive by it
    path.unlink(missing_ok=True)


def withdraw(path: Path, described: dict[str, Any]) -> None:
    """Remove the file, unless another stack has written its own in its place meanwhile."""
    try:
        if json.loads(path.read_text()) == described:
            path.unlink()
    except (OSError, ValueError):
        return


def write(path: Path, described: dict[str, Any]) -> None:
    """Write the file so that a reader sees it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(described, indent=2) + "\n")
    unfinished.replace(path)
