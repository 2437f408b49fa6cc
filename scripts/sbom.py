"""Write the software bill of materials of the proxy's image: `make sbom` writes build/sbom/diskless-proxy.cdx.json.

It lists the packages that `deploy/container/locked.py` takes from the lock, as CycloneDX in JSON. The script installs
them into an environment of their own, so that the list has their licences and dependencies. The tool is cyclonedx-bom,
pinned by `deploy/container/sbom.lock`. The packages of the base image are not in the list.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIRECTORY = ROOT / "build" / "sbom"
TOOL, IMAGE, LIST = DIRECTORY / "tool", DIRECTORY / "image", DIRECTORY / "diskless-proxy.cdx.json"
LOCKS = ROOT / "deploy" / "container"


def install(environment: Path, lock: Path) -> None:
    """Create an environment with exactly the packages of a lock."""
    venv.create(environment, clear=True, with_pip=True)
    pip = [environment / "bin" / "python", "-m", "pip"]
    subprocess.run([*pip, "install", "-q", "--require-hashes", "--no-deps", "-r", lock], check=True)
    subprocess.run([*pip, "uninstall", "-q", "-y", "pip", "setuptools"], check=True)


def main() -> None:
    """Write the list."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    lock = DIRECTORY / "image.lock"
    with lock.open("w") as file:
        subprocess.run([sys.executable, LOCKS / "locked.py"], stdout=file, check=True)
    install(IMAGE, lock)
    install(TOOL, LOCKS / "sbom.lock")
    command = [TOOL / "bin" / "cyclonedx-py", "environment", IMAGE / "bin" / "python"]
    options = ["--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--output-format", "JSON"]
    subprocess.run([*command, *options, "--output-file", LIST], check=True)
    print(LIST.relative_to(ROOT))


if __name__ == "__main__":
    main()
