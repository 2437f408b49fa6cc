"""A reload applies all of a good file and nothing of a bad one, and the log says which."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from proxy.config import Settings, load_settings
from proxy.server import reload
from proxy.server.reload import Reloader
from proxy.telemetry.logs import configure_logging, log_level, set_log_level

GOOD = """\
rack: rack-a
brokers: {bootstrap: ["127.0.0.1:9092"]}
redis: {url: "redis://user:hush@127.0.0.1:6379"}
storage: {url: "file:///tmp/wal"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "proxy.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture(autouse=True)
def logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the loggers: a logger that has been used keeps its configuration, and the module's own must not."""
    before, level = structlog.get_config(), log_level()
    monkeypatch.setattr(reload, "log", structlog.get_logger())
    yield
    structlog.configure(**before)
    set_log_level(level)


def reloader_of(
    file: Path, *, pass_on: Callable[[Settings], Awaitable[None]] | None = None
) -> tuple[Settings, Reloader, list[set[str]]]:
    settings, changes = load_settings(file), list[set[str]]()
    reloader = Reloader(
        settings, lambda: load_settings(file), lambda names: changes.append(set(names)), pass_on=pass_on
    )
    return settings, reloader, changes


def write(file: Path, text: str | bytes | None) -> None:
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())


def events(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines]


async def test_a_changed_file_is_applied_and_its_changes_are_passed_on(file: Path) -> None:
    settings, reloader, changes = reloader_of(file)
    write(file, GOOD + "limits: {max_connections: 7}\ndiskless.append.commit.interval.ms: 40\nworkers: 3\n")
    with capture_logs() as lines:
        outcome = await reloader.reload()
    assert outcome.applied == ("limits.max_connections", "diskless.append.commit.interval.ms")
    assert outcome.needs_restart == ("workers",)
    assert outcome.error is None
    assert (settings.limits.max_connections, settings.diskless_append_commit_interval_ms, settings.workers) == (
        7,
        40,
        1,
    )
    assert changes == [{"limits.max_connections", "diskless_append_commit_interval_ms"}]
    assert events(lines) == ["settings_reloaded", "settings_need_restart"]
    assert lines[0]["changed"] == ["limits.max_connections", "diskless.append.commit.interval.ms"]
    assert lines[1]["settings"] == ["workers"]

    with capture_logs() as lines:
        again = await reloader.reload()
    assert (again.applied, again.needs_restart) == ((), ("workers",)), "until someone restarts it"
    write(file, GOOD)
    back = await reloader.reload()
    assert (back.applied, back.needs_restart) == (outcome.applied, ())
    assert settings == load_settings(file)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (GOOD + "limits: {max_connections: 7, max_frames: 3}\n", "did you mean limits.max_frame_bytes?"),
        (GOOD + "limits: {max_connections: -1}\n", "limits.max_connections"),
        (GOOD + "limits: {max_connections: 7}\nfleet: {lease_ms: 1}\n", "fleet.lease_ms"),
        ("rack: [", "is not YAML"),
        ("", "contains no settings"),
        (None, "can't read"),
        (b"rack: \xff\n", "not UTF-8"),
    ],
)
async def test_an_invalid_file_changes_nothing(file: Path, text: str | bytes | None, changes: str) -> None:
    settings, reloader, parts = reloader_of(file)
    before = settings.model_copy(deep=True)
    write(file, text)
    with capture_logs() as lines:
        outcome = await reloader.reload()
    assert outcome.error is not None
    assert changes in outcome.error
    assert (outcome.applied, outcome.needs_restart, parts) == ((), (), [])
    assert settings == before
    assert events(lines) == ["settings_not_reloaded"]
    assert lines[0]["reason"] == outcome.error


async def test_secrets_are_not_logged(file: Path) -> None:
    _, reloader, _ = reloader_of(file)
    write(file, GOOD.replace("hush", "louder") + "storage_key: louder\n")
    with capture_logs() as lines:
        await reloader.reload()
        write(file, GOOD.replace("hush", "louder"))
        outcome = await reloader.reload()
    assert outcome.needs_restart == ("redis.url",)
    assert "hush" not in str(lines)
    assert "louder" not in str(lines)


async def test_the_environment_stands_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLESS_PROXY_PRICES__CROSS_RACK_USD_PER_GB", "5")
    settings, reloader, _ = reloader_of(file)
    write(file, GOOD + "prices: {cross_rack_usd_per_gb: 7, put_usd_per_thousand: 8}\n")
    outcome = await reloader.reload()
    assert outcome.applied == ("prices.put_usd_per_thousand",)
    assert settings.prices.cross_rack_usd_per_gb == 5


async def test_a_level_that_somebody_set_meanwhile_stays_until_the_file_says_another(file: Path) -> None:
    configure_logging("info", "console")
    _, reloader, _ = reloader_of(file)
    set_log_level("debug")
    write(file, GOOD + "prices: {put_usd_per_thousand: 8}\n")
    with capture_logs() as lines:
        await reloader.reload()
    assert log_level() == "debug"
    assert lines[0]["log_level_stays"] == "debug"
    write(file, GOOD + "log_level: warning\n")
    await reloader.reload()
    assert log_level() == "warning"


async def test_lines_are_written_as_the_file_says_from_then_on(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "console")
    log = structlog.get_logger()
    log.info("before")
    _, reloader, _ = reloader_of(file)
    write(file, GOOD + "log_format: json\n")
    await reloader.reload()
    log.info("after")
    lines = capsys.readouterr().err.splitlines()
    assert "before" in lines[0]
    assert not lines[0].startswith("{")
    assert '"event": "settings_reloaded"' in lines[1]
    assert '"event": "after"' in lines[2]


async def test_the_reload_is_passed_on_whenever_the_file_is_good(file: Path) -> None:
    passed = list[int]()

    async def pass_on(settings: Settings) -> None:
        passed.append(settings.limits.max_connections)

    _, reloader, _ = reloader_of(file, pass_on=pass_on)
    write(file, GOOD + "limits: {max_connections: 7}\n")
    await reloader.reload()
    await reloader.reload()
    write(file, "rack: [")
    await reloader.reload()
    assert passed == [7, 7], "also when nothing changed: a worker may have missed it"


async def test_many_signals_are_one_reload(file: Path) -> None:
    read, begun, free = list[int](), asyncio.Event(), asyncio.Event()
    settings = load_settings(file)
    loop = asyncio.get_running_loop()

    def count() -> Settings:
        read.append(len(read))
        loop.call_soon_threadsafe(begun.set if len(read) == 1 else free.set)
        return load_settings(file)

    reloader = Reloader(settings, count)
    for _ in range(5):
        reloader.want()
    work = asyncio.create_task(reloader.keep_reloading())
    await begun.wait()
    for _ in range(5):
        reloader.want()
    await free.wait()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert read == [0, 1]


async def test_a_worker_refuses_by_itself(file: Path) -> None:
    outcome = await Reloader(load_settings(file), None).reload()
    assert outcome.error is not None
    assert "parent" in outcome.error
