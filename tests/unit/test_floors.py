"""A file imports only its own room and lower floors (docs/architecture.md), and no files import one another."""

from __future__ import annotations

import pytest

from tests.support.floors import ENTRY, ROOT, Room, circles, imports, room_of, rooms, upward_imports


def test_a_file_imports_only_lower_floors() -> None:
    assert not sorted(upward_imports()), "import from a lower floor, see docs/architecture.md"


def test_no_files_import_one_another() -> None:
    assert [sorted(circle) for circle in circles()] == []


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
    assert "proxy/connection/open_connection.py" in imports()["proxy/connection/connections.py"]
