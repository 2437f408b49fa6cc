"""Run `diskless-proxy run` with a test's own settings, and read the line that rejects them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from proxy.demo.ports import HOST
from proxy.demo.proxies import merged
from tests.support.ports import free_port


class Ports:
    """Free ports for a proxy, with a listener for one broker, and for a store."""

    def __init__(self) -> None:
        self.bootstrap, self.broker, self.admin, self.redis = (free_port() for _ in range(4))


def command(directory: Path, ports: Ports, overrides: dict[str, Any]) -> list[str]:
    """Return the command of a proxy whose store and brokers do not exist, with `overrides` applied to its settings."""
    settings = {
        "rack": "rack-a",
        "listeners": {
            "bootstrap_port": ports.bootstrap,
            "broker_port_start": ports.broker - 1,
            "broker_node_ids": "1",
        },
        "admin": {"port": ports.admin},
        "brokers": {"bootstrap": [f"{HOST}:{free_port()}"]},
        "redis": {"url": f"redis://{HOST}:{ports.redis}"},
        "storage": {"url": (directory / "wal").as_uri()},
    }
    path = directory / "proxy.yaml"
    path.write_text(yaml.safe_dump(merged(settings, overrides)))
    return [sys.executable, "-m", "proxy", "run", "--config", str(path)]


def refusal(arguments: list[str]) -> str:
    """Return the only line that the process printed before it ended."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "Traceback" not in done.stdout
    return line
