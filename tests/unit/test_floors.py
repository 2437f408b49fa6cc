"""A file imports only its own room and lower floors (docs/architecture.md); the list of exceptions only shrinks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.floors import ENTRY, ROOT, Room, circles, imports, room_of, rooms, upward_imports

EXCEPTIONS = Path(__file__).with_name("floors_exceptions.txt")
FILES_IN_CIRCLES = 7
"""Files that import one another; never raise it."""
FILES_WITH_CONTEXT = 13
"""Files that reach for all parts of the process through a client; never raise it."""


def test_a_file_imports_only_lower_floors() -> None:
    excused = set(EXCEPTIONS.read_text().splitlines())
    assert not sorted(upward_imports() - excused), "import from a lower floor, see docs/architecture.md"
    assert not sorted(excused - upward_imports()), f"fixed: remove these lines from {EXCEPTIONS.name}"


def test_files_in_circles_only_get_fewer() -> None:
    files = sorted(file for circle in circles() for file in circle)
    assert len(files) == FILES_IN_CIRCLES, files


def test_handlers_reach_for_the_context_in_fewer_files() -> None:
    files = {file for file in imports() if re.search(r"client\.context\b", (ROOT / file).read_text())}
    assert len(files) == FILES_WITH_CONTEXT, sorted(files)


def test_every_file_has_a_room() -> None:
    of = rooms()
    assert len(of) > 20
    assert {room_of(file, of).name for file in imports() if file not in ENTRY} == {room.name for room in of}


def test_every_path_of_the_table_exists() -> None:
    paths = [path for room in rooms() for path in room.paths]
    assert len(paths) == len(set(paths))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_longest_path_decides() -> None:
    handlers = Room(9, "handlers", ("proxy/handlers/",))
    topics = Room(5, "topics", ("proxy/topics/topics.py", "proxy/topics/topic_resources.py"))
    of = [handlers, topics]
    assert room_of("proxy/topics/topic_resources.py", of) is topics
    assert room_of("proxy/handlers/offsets.py", of) is handlers
    with pytest.raises(KeyError):
        room_of("proxy/topics_of_another.py", of)


def test_imports_for_typing_count() -> None:
    assert "proxy/handlers/__init__.py" in imports()["proxy/assembly/context.py"]
