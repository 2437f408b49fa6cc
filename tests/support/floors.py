"""The floors of the house: the imports of each file, and its room and floor by the table in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("proxy", "pipeline")
ENTRY = {"proxy/__init__.py", "proxy/__main__.py"}
"""Files outside the floors: the version, which everybody may import, and the start."""


class Room(NamedTuple):
    """A row of the rooms table."""

    floor: int
    name: str
    paths: tuple[str, ...]
    """Files and folders (with a slash at the end), from the root of the repository."""


def rooms() -> list[Room]:
    """Return the rooms in the order of the table in docs/architecture.md."""
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    rows = [row.split("|") for row in section.splitlines() if re.match(r"\| \d", row)]
    return [
        Room(int(floor), name.strip(), tuple(_from_root(path) for path in re.findall("`(.+?)`", paths)))
        for _, floor, name, paths, *_ in rows
    ]


def _from_root(path: str) -> str:
    return path if path.startswith(PACKAGES[1:]) else f"proxy/{path}"


def room_of(file: str, of: list[Room]) -> Room:
    """Return the room with the longest path that fits. Raises KeyError for a file without a room."""
    fitting = [
        (len(path), room)
        for room in of
        for path in room.paths
        if file == path or (path.endswith("/") and file.startswith(path))
    ]
    if not fitting:
        raise KeyError(f"{file} has no room in docs/architecture.md")
    return max(fitting)[1]


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Return the files that each file of `proxy/` and `pipeline/` imports, at any place and for typing, too."""
    files = {path.relative_to(ROOT).as_posix(): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    return {name: frozenset(set(_imported(path, files)) - {name}) for name, path in sorted(files.items())}


def _imported(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from package import module` names a module; `from module import name` does not.
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            yield from _file_of(module, files)


def _file_of(module: str, files: Mapping[str, Path]) -> Iterator[str]:
    """Yield the file of a module, or of the longest leading part of its name that is a module."""
    while module:
        path = module.replace(".", "/")
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if file in files:
                yield file
                return
        module = module.rpartition(".")[0]


def upward_imports() -> set[str]:
    """Return `importer -> imported` for each import of another room that is not on a lower floor."""
    of = rooms()
    return {
        f"{importer} -> {imported}"
        for importer, targets in imports().items()
        for imported in targets
        if not ENTRY & {importer, imported}
        and (here := room_of(importer, of)) != (there := room_of(imported, of))
        and there.floor >= here.floor
    }


def circles() -> list[set[str]]:
    """Return the sets of files that import one another, directly or through others."""
    graph = imports()
    reached = {file: _reached_from(file, graph) for file in graph}
    circles = {frozenset(other for other in reached[file] if file in reached[other]) for file in graph}
    return [set(circle) for circle in circles if circle]


def _reached_from(file: str, graph: Mapping[str, frozenset[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(graph[file])
    while waiting:
        if (imported := waiting.pop()) not in reached:
            reached.add(imported)
            waiting.extend(graph[imported])
    return reached
