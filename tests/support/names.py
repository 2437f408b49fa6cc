"""Host names that only some programs resolve: each runs in a mount namespace of its own with another `/etc/hosts`.

The machine's file is not changed. This works for every client, whatever resolver it has.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

ADDRESS = "127.0.0.1"
_BINDING = 'mount --bind "$0" /etc/hosts && exec "$@"'


class Names:
    """Names that lead to this machine for the programs that `within` wraps."""

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        """Write the names into the file."""
        self._path = path
        path.write_text(f"{ADDRESS} localhost\n" + "".join(f"{ADDRESS} {name}\n" for name in names))

    def within(self, command: Sequence[str]) -> list[str]:
        """Return the command of a program that resolves the names. It gets signals, and ends, as without names."""
        # By its path: the programs of the stack are started without a search.
        unshare = shutil.which("unshare") or "unshare"
        return [unshare, "--map-root-user", "--mount", "sh", "-c", _BINDING, str(self._path), *command]


def names(path: Path, names: Iterable[str]) -> Names:
    """Return the names, or skip the test if this system allows no mount namespaces."""
    made = Names(path, names)
    if not shutil.which("unshare"):
        pytest.skip("this system has no unshare")
    tried = subprocess.run(made.within(["true"]), capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"names cannot be resolved here: {tried.stderr.strip()}")
    return made
