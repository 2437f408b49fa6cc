"""What an image needs of the project's lock: `python deploy/container/locked.py [--extra pipeline]` prints it.

The locks have tools and servers for development too, ten times as much. Taken is what `pyproject.toml` names in
`dependencies` and the extra, and what those need, as the lock's own `# via` notes say; versions and hashes stay.
Nothing but Python is needed, as it runs where the image is built.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPARK_ITSELF = "pipeline"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(lock: str) -> dict[str, str]:
    """Each package's lines of the lock, by its name."""
    blocks = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    return {normal(_name(block)): block for block in blocks if block and not block.startswith("#")}


def needed_by(block: str) -> set[str]:
    """Whom the `# via` notes of a package name."""
    _, _, notes = block.partition("# via")
    return {normal(_name(line.lstrip("# "))) for line in notes.splitlines() if line.strip(" #")}


def closure(lock: dict[str, str], roots: set[str]) -> list[str]:
    """Names of the roots and of all that they need, sorted. Raises KeyError where the lock lacks one of them."""
    found = set[str]()
    more = set(roots)
    while more:
        found |= more
        more = {name for name, block in lock.items() if name not in found and needed_by(block) & found}
    return sorted(name for name in found if lock[name])


def _name(text: str) -> str:
    matched = _NAME.match(text)
    return matched[0] if matched else ""


def main() -> None:
    """Print the requirements."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--extra", action="append", default=[], help="of pyproject.toml, in addition to its dependencies"
    )
    extras = parser.parse_args().extra
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(line for name in extras for line in project["optional-dependencies"][name])]
    file = "requirements-pipeline.lock" if SPARK_ITSELF in extras else "requirements.lock"
    lock = entries((ROOT / file).read_text())
    try:
        names = closure(lock, {normal(_name(line)) for line in wanted})
    except KeyError as missing:
        sys.exit(f"{missing} is not in {file}: renew it")
    sys.stdout.write("".join(lock[name] for name in names))


if __name__ == "__main__":
    main()
