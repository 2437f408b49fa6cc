"""Run the real Prometheus and promtool, if set-up could fetch them."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.servers import servers_directory
from proxy.demo.waiting import wait_until
from tests.support.ports import free_port

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
_PLACE = servers_directory() / "prometheus"
WAIT_SECONDS = 250

needs_prometheus = pytest.mark.skipif(
    not (_PLACE / "prometheus").exists(), reason="no Prometheus: `make setup` fetches it where there is apt-get"
)


def promtool(*arguments: str) -> str:
    """Return promtool's output. Fails the test if promtool finds an error."""
    command = [str(_PLACE / "promtool"), *arguments]
    done = subprocess.run(command, cwd=RULES, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A running Prometheus server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an API answer. Fails the test if Prometheus rejects the request."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None
        assert answer["status"] == "success"
        assert not answer.get("warnings"), (parameters, answer["warnings"])
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of the query."""
        result = self.ask("query", query=expression)["result"]
        assert isinstance(result, list)
        return result

    def wait_for(self, expression: str) -> None:
        """Wait until the query has a series."""
        wait_until(
            lambda: "" if self.query(expression) else f"no series for {expression}",
            WAIT_SECONDS,
            threading.Event(),
            str,
        )

    def answers(self) -> bool:
        """True if the server answers."""
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=10):
                return True
        except OSError:
            return False


@contextmanager
def prometheus_server(directory: Path, targets: Sequence[str]) -> Iterator[Prometheus]:
    """Run a server that scrapes `targets`, each `host:port`, every second as `deploy/prometheus/prometheus.yaml`
    would."""
    config = yaml.safe_load((RULES / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES / name) for name in config["rule_files"]]
    config["scrape_configs"][0]["static_configs"] = [{"targets": list(targets)}]
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        str(_PLACE / "prometheus"),
        f"--config.file={directory / 'prometheus.yaml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={HOST}:{port}",
    ]
    process = Process("prometheus", command, directory / "prometheus.log")
    process.start()
    try:
        running = Prometheus(f"http://{HOST}:{port}")
        wait_until(
            lambda: "" if running.answers() else f"no answer: {(directory / 'prometheus.log').read_text()[-500:]}",
            WAIT_SECONDS,
            threading.Event(),
            str,
        )
        yield running
    finally:
        process.terminate()
        process.wait_ended()
