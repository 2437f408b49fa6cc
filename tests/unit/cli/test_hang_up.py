"""SIGHUP ends no process of a proxy: neither during the start nor during the end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog
import yaml

import proxy.server.server
from proxy.cli.run import run

# Runs the module until it imports part of the proxy or another package, and prints the signal's handler at that point.
_UNTIL_IMPORTS = """
import runpy, signal, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("structlog", "uvloop") or name.startswith("proxy.admin"):
            print(signal.getsignal(signal.SIGHUP).name)
            sys.exit()

sys.meta_path.insert(0, Watch())
runpy.run_module("proxy.server.worker", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def process_as_before() -> Iterator[None]:
    handler, interval_s, config = signal.getsignal(signal.SIGHUP), sys.getswitchinterval(), structlog.get_config()
    yield
    structlog.configure(**config)
    signal.signal(signal.SIGHUP, handler)
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("process_as_before")
@pytest.mark.parametrize("fails", [False, True])
def test_a_proxy_that_has_ended_ignores_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    seen: list[str] = []

    async def until_hung_up() -> None:
        hung_up = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
        os.kill(os.getpid(), signal.SIGHUP)
        await hung_up.wait()
        seen.append("reload")
        if fails:
            raise RuntimeError("broken")

    monkeypatch.setattr(proxy.server.server, "Server", lambda *_, **__: SimpleNamespace(run=until_hung_up))
    path = tmp_path / "proxy.yaml"
    settings = {
        "rack": "rack-a",
        "brokers": {"bootstrap": ["127.0.0.1:9092"]},
        "redis": {"url": "redis://127.0.0.1:6379"},
        "storage": {"url": f"file://{tmp_path}"},
    }
    path.write_text(yaml.safe_dump(settings))
    if fails:
        with pytest.raises(RuntimeError, match="broken"):
            run(path)
    else:
        run(path)
    assert seen == ["reload"]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_worker_ignores_it_before_its_slow_imports() -> None:
    done = subprocess.run([sys.executable, "-c", _UNTIL_IMPORTS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "SIG_IGN"), done.stderr
