"""`diskless-proxy verify` logs in with the settings of --client-config, and says why if it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack

pytestmark = pytest.mark.timeout(280)


def verify(stack: Stack, directory: Path, *options: str, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run the command through the proxies of both racks, as the stack's administrator."""
    settings = stack.security.client_settings(ADMIN) | {
        name.replace("_", "."): value for name, value in changed.items()
    }
    config = directory / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    bootstrap = ",".join(stack.bootstrap(rack) for rack in stack.proxies)
    return subprocess.run(
        [sys.executable, "-m", "proxy", "verify", "--bootstrap", bootstrap, "--client-config", str(config), *options],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=240,
        check=False,
    )


def test_it_logs_in_with_tls_and_sasl(secure: Stack, tmp_path: Path) -> None:
    done = verify(secure, tmp_path, "--seconds", "15", "--rate", "50", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["ok"], report["complete"], report["findings"]) == (True, True, [])
    assert report["counts"]["acknowledged"] >= 50
    assert report["counts"]["committed"] >= 1


def test_a_wrong_password_is_named(secure: Stack, tmp_path: Path) -> None:
    done = verify(secure, tmp_path, sasl_password="wrong")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "reject the login" in done.stderr
    assert "sasl.password" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
