"""The number of connections that the limit of open files allows."""

from __future__ import annotations

import contextlib
import errno
import os
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from proxy.config import FetchSettings, Limits, Listeners
from proxy.process import open_files


def settings(max_connections: int, *, near_reads: bool = False, workers: int = 1) -> Any:
    return SimpleNamespace(
        fetch=FetchSettings(read_near_replicas=near_reads),
        limits=Limits(max_connections=max_connections),
        redis=SimpleNamespace(max_connections=32),
        storage=SimpleNamespace(max_connections=32),
        all_listeners=(Listeners(), Listeners()),
        workers=workers,
    )


def test_pieces_of_shared_memory_take_descriptors_too():
    alone, shared = (open_files.connections_allowed(settings(1, workers=workers), 20_000) for workers in (1, 2))
    assert alone - shared == (256 + 64 + 512) // 4


def test_each_connection_takes_two_descriptors_besides_the_processs_own():
    allowed = open_files.connections_allowed(settings(1), 20_000)
    assert 9_900 < allowed < 9_950
    assert open_files.connections_allowed(settings(1), 20_200) == allowed + 100


def test_with_near_reads_each_connection_takes_one_more():
    allowed = open_files.connections_allowed(settings(1), 20_000)
    with_near_reads = open_files.connections_allowed(settings(1, near_reads=True), 20_000)
    assert with_near_reads == 2 * allowed // 3


def test_there_is_always_room_for_one():
    assert open_files.connections_allowed(settings(1), 10) == 1


@pytest.mark.parametrize(("wanted", "given", "lines"), [(100, 100, 0), (10_000, 437, 1)])
def test_a_lowered_limit_is_logged_with_its_remedy(monkeypatch, wanted, given, lines):
    monkeypatch.setattr(open_files, "raise_limit", lambda: 1024)
    with structlog.testing.capture_logs() as logged:
        monkeypatch.setattr(open_files, "log", structlog.get_logger())
        assert open_files.max_connections(settings(wanted)) == given
    assert len(logged) == lines
    assert all("ulimit -n" in line["remedy"] and "limits.max_connections" in line["reason"] for line in logged)


@pytest.mark.parametrize(("limit", "given", "lines"), [(20_000, 9_925, 0), (1024, 437, 1)])
def test_without_a_setting_the_limit_of_open_files_decides(monkeypatch, limit, given, lines):
    monkeypatch.setattr(open_files, "raise_limit", lambda: limit)
    with structlog.testing.capture_logs() as logged:
        monkeypatch.setattr(open_files, "log", structlog.get_logger())
        assert open_files.max_connections(settings(0)) == given
    assert len(logged) == lines
    assert all("ulimit -n" in line["remedy"] and "437 client connections" in line["reason"] for line in logged)


def test_without_either_there_is_a_bound(monkeypatch):
    monkeypatch.setattr(open_files, "raise_limit", lambda: open_files.resource.RLIM_INFINITY)
    assert open_files.max_connections(settings(0)) == open_files.MOST_WITHOUT_LIMIT


def test_without_a_limit_the_setting_stands(monkeypatch):
    monkeypatch.setattr(open_files, "raise_limit", lambda: open_files.resource.RLIM_INFINITY)
    assert open_files.max_connections(settings(10_000)) == 10_000


@pytest.mark.parametrize(
    ("error", "exhausted"),
    [(OSError(errno.EMFILE, "x"), True), (OSError(errno.ENFILE, "x"), True), (OSError(5, "x"), False), (None, False)],
)
def test_exhaustion_is_distinguished_from_other_errors(error, exhausted):
    assert open_files.are_exhausted(error) is exhausted


def test_the_last_descriptor_is_noticed():
    limit = open_files.resource.getrlimit(open_files.resource.RLIMIT_NOFILE)
    held = [os.dup(2)]
    assert not open_files.none_left()
    try:
        open_files.resource.setrlimit(open_files.resource.RLIMIT_NOFILE, (held[0] + 40, limit[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(2))
        assert open_files.none_left()
        os.close(held.pop())
        assert not open_files.none_left()
    finally:
        open_files.resource.setrlimit(open_files.resource.RLIMIT_NOFILE, limit)
        for descriptor in held:
            os.close(descriptor)
