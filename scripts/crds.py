"""Fetch schemas of the Prometheus operator's kinds, which the Helm chart renders, into `.servers/crds`; only tests use
them.

They are files of the operator's Go module, which Go checks against its checksum database. If it cannot be fetched,
set-up continues, and the tests that need it are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from go_programs import go_environment, launchers
from optional import make_once

MODULE = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
KINDS = ("servicemonitors", "prometheusrules")


def fetch_crds() -> None:
    """Fetch them if they are missing; print a line if that is impossible."""
    make_once("crds", MODULE, _fetch, what="schema of the Prometheus operator", skipped="tests that need it")


def _fetch(into: Path) -> str:
    """Download the module and keep its schemas; return why that failed, or an empty string."""
    building, reasons = into / "go", []
    for go in launchers():
        command = [go, "mod", "download", "-json", MODULE]
        done = subprocess.run(command, env=go_environment(building), capture_output=True, text=True, check=False)
        if not done.returncode:
            module = Path(json.loads(done.stdout)["Dir"])
            for kind in KINDS:
                name = f"monitoring.coreos.com_{kind}.yaml"
                shutil.copyfile(module / "example" / "prometheus-operator-crd" / name, into / name)
            shutil.rmtree(building)
            return ""
        reasons.append(f"{go}: {done.stderr.strip() or done.stdout.strip()}")
    return f"{MODULE} could not be fetched; " + ("; ".join(reasons) or "there is no go")
