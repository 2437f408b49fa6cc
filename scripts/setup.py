"""Make `.venv` and fetch the servers: `python3 scripts/setup.py [--demo]`, from nothing but Python 3.11.

Packages come from `requirements.lock`, checked by hash: through uv where it is there, else through venv and pip.
Nothing is done twice: a stamp in `.venv` tells which lock it was made from, and `fetch_servers.py` keeps its own.
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
LOCK = ROOT / "requirements.lock"
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
        make_venv()
        run([str(PYTHON), "scripts/fetch_servers.py", *sys.argv[1:]], "the servers could not be fetched, see above")


def trust_system_certificates() -> None:
    """Tell pip and requests of the certificate file that OpenSSL, uv and Go are told of by SSL_CERT_FILE."""
    bundle = os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE")
    if bundle:
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"):
            os.environ.setdefault(name, bundle)


def make_venv() -> None:
    """`.venv` with the locked packages, and the project in it, editable."""
    wanted = hashlib.sha256(LOCK.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    made = STAMP.read_text() if STAMP.exists() else ""
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
    say(f"installing the packages of {LOCK.name} (800 MB on disk, most of it servers and compilers)")
    run([*install, "--require-hashes", "--requirement", str(LOCK)], failed)
    say("installing diskless-proxy itself, editable")
    run([*install, "--no-deps", "--editable", str(ROOT)], failed)
    STAMP.write_text(wanted)


def works(command: list[str]) -> bool:
    """Whether the command can be run and succeeds."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(command: list[str], failed: str) -> None:
    """Run a command, or end with the message."""
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"setup: {failed}")


def say(text: str) -> None:
    """Tell what is being done."""
    print(f"setup: {text}", flush=True)


if __name__ == "__main__":
    main()
