"""Create `.venv` and fetch the servers: `python3 scripts/setup.py [--demo]`. It needs only Python 3.11.

Packages come from a lock and are checked by hash, with uv if it exists, otherwise with venv and pip. `--demo` uses
`requirements.lock`, which has no Spark, unless `.venv` has Spark already. Nothing is done twice: a stamp in `.venv`
names the lock that it was created from, and `fetch_servers.py` keeps its own stamps.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
DEMO, PIPELINE = "requirements.lock", "requirements-pipeline.lock"
STAMP = VENV / ".made-from"


def main() -> None:
    """Do what is missing, one set-up at a time."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is the first that an older Python meets
        sys.exit(
            f"diskless-proxy needs Python 3.11 or newer, this is {sys.version.split()[0]}; try make PYTHON=python3.12"
        )
    os.chdir(ROOT)
    trust_system_certificates()
    servers = ROOT / ".servers"
    servers.mkdir(exist_ok=True)
    with (servers / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_venv(demo_only="--demo" in sys.argv[1:])
        run([str(PYTHON), "scripts/fetch_servers.py", *sys.argv[1:]], "the servers could not be fetched, see above")


def trust_system_certificates() -> None:
    """Point pip and requests to the certificate file that SSL_CERT_FILE names, which OpenSSL, uv and Go use already."""
    bundle = os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE")
    if bundle:
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"):
            os.environ.setdefault(name, bundle)


def make_venv(*, demo_only: bool) -> None:
    """Create `.venv` with the locked packages, and the project in it, editable."""
    made = STAMP.read_text() if STAMP.exists() else ""
    lock = wanted_lock(made, demo_only=demo_only)
    wanted = stamp(lock)
    if made == wanted and (VENV / "bin" / "diskless-proxy").exists():
        return
    uv = shutil.which("uv")
    broken = not works([str(PYTHON), "-c", ""])
    if broken:
        say("making .venv")
    if uv and works([uv, "--version"]):
        if broken:
            run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(VENV)], "uv could not make .venv")
        install = [uv, "pip", "install", "--quiet", "--python", str(PYTHON)]
    else:
        if broken:
            remedy = "install the venv module of this Python (Debian: python3-venv), or uv"
            run([sys.executable, "-m", "venv", "--clear", str(VENV)], f"Python could not make .venv: {remedy}")
        elif not works([str(PYTHON), "-m", "pip", "--version"]):
            run([str(PYTHON), "-m", "ensurepip"], "there is no pip in .venv; remove .venv and try again")
        install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    failed = "packages could not be installed, see above"
    size = (
        "1.5 GB on disk, a third of it Spark" if lock == PIPELINE else "1 GB on disk, most of it servers and compilers"
    )
    say(f"installing the packages of {lock} ({size})")
    run([*install, "--require-hashes", "--requirement", str(ROOT / lock)], failed)
    say("installing diskless-proxy itself, editable")
    run([*install, "--no-deps", "--editable", str(ROOT)], failed)
    STAMP.write_text(wanted)


def wanted_lock(made: str, *, demo_only: bool) -> str:
    """Return the lock for `.venv`, given its present lock: Spark is not removed for a demo."""
    return DEMO if demo_only and not made.startswith(PIPELINE) else PIPELINE


def stamp(lock: str) -> str:
    """Return a stamp that identifies the lock's present content."""
    content = (ROOT / lock).read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    return f"{lock} {hashlib.sha256(content).hexdigest()}"


def works(command: list[str]) -> bool:
    """True if the command can be run and succeeds."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(command: list[str], failed: str) -> None:
    """Run a command, or exit with the message."""
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"setup: {failed}")


def say(text: str) -> None:
    """Print the current step."""
    print(f"setup: {text}", flush=True)


if __name__ == "__main__":
    main()
