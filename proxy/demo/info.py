"""The information file of `diskless-proxy demo --serve --info FILE`: where everything is, for scripts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from proxy.demo import s3
from proxy.demo.stack import Stack


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


def write(path: Path, described: dict[str, Any]) -> None:
    """Write the file so that a reader sees it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(described, indent=2) + "\n")
    unfinished.replace(path)
