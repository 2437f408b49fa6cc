"""The proxies of the stack, one or more per rack, each run as an operator would."""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from proxy.demo.admin import get
from proxy.demo.errors import StackError
from proxy.demo.ports import HOST, Ports
from proxy.demo.process import Process
from proxy.demo.waiting import wait_until

FLEET = "diskless_proxy_fleet_proxies"
STOP_TIMEOUT_SECONDS = 30.0
"""A little more than the setting `limits.drain_timeout_ms`."""


class RackProxy:
    """A proxy of one rack: its settings file and its process."""

    def __init__(
        self,
        directory: Path,
        ports: Ports,
        index: int,
        rack: str,
        settings: Mapping[str, Any],
        *,
        name: str = "",
        program: Sequence[str] = (),
    ) -> None:
        """`index` is its place in the port layout; `settings` are put over rack, listeners and admin.

        `name` stands for the rack in the names of its files and its process, where the rack has several proxies;
        `program` is as for `run_by`.
        """
        self.rack = rack
        name = f"proxy-{name or rack}"
        self.bootstrap = f"{HOST}:{ports.bootstrap(index)}"
        self.admin_address = f"{HOST}:{ports.admin(index)}"
        self.admin_url = f"http://{self.admin_address}"
        self.config_path = directory / "config" / f"{name}.yaml"
        self.settings = merged(
            {
                "rack": rack,
                "listeners": {
                    "host": HOST,
                    "bootstrap_port": ports.bootstrap(index),
                    "broker_port_start": ports.broker_port_start(index),
                    "broker_node_ids": "1-9",
                },
                "admin": {"host": HOST, "port": ports.admin(index)},
            },
            settings,
        )
        # Settings in the user's environment are meant for another proxy.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DISKLESS_PROXY_")}
        self.process = Process(
            name,
            [],
            directory / "logs" / f"{name}.log",
            environment=environment,
            stop_timeout_seconds=STOP_TIMEOUT_SECONDS,
        )
        self.run_by(program)

    def run_by(self, program: Sequence[str]) -> None:
        """Another release's program, from the next start on; this one's where empty."""
        self.process.command = [*(program or (sys.executable, "-m", "proxy")), "run", "--config", str(self.config_path)]

    def prepare(self) -> None:
        """Write the settings file."""
        self.config_path.write_text(yaml.safe_dump(self.settings, sort_keys=False))

    def configure(self, overrides: Mapping[str, Any]) -> None:
        """Change settings, from the next start on."""
        self.settings = merged(self.settings, overrides)
        self.prepare()

    def wait_ready(self, timeout_seconds: float, cancelled: Event) -> None:
        """Wait until `/readyz` answers 200. Raises StackError when time is up."""
        wait_until(self._complaint, timeout_seconds, cancelled, self._explain)

    def wait_acquainted(self, proxies: Mapping[str, int], timeout_seconds: float, cancelled: Event) -> None:
        """Wait until it names this many proxies of each rack to clients, so that its answers change no more.

        Raises StackError when time is up.
        """

        def complaint() -> str:
            known = {
                sample.labels["rack"]: int(sample.value)
                for family in text_string_to_metric_families(get(self.admin_url, "/metrics")[1])
                for sample in family.samples
                if sample.name == FLEET
            }
            return "" if known == proxies else f"its fleet is {known}, not {dict(proxies)}"

        wait_until(complaint, timeout_seconds, cancelled, self._explain)

    def _complaint(self) -> str:
        if not self.process.running:
            raise StackError(self._explain(f"it ended (exit code {self.process.exit_code})"))
        status, text = get(self.admin_url, "/readyz")
        return "" if status == http.client.OK else f"/readyz answers {status or 'nothing'}: {text}"

    def _explain(self, complaint: str) -> str:
        name, log = self.process.name, self.process.log
        return f"{name} is not ready: {complaint}; see {log}:\n{self.process.log_tail()}"


def merged(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with `overrides` put over them, section by section."""
    result = dict(settings)
    for key, value in overrides.items():
        under = result.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        result[key] = merged(under, value) if both else value  # type: ignore[arg-type]
    return result
