"""After a reload, every part uses the same values as after a start with the new file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from proxy.assembly.parts import Parts
from proxy.config import Settings
from proxy.config.live import MISSING, value_of, write
from proxy.config.reference import Setting, all_settings
from proxy.diskless.cache import BlockCache
from proxy.diskless.parts import DirectReads
from proxy.diskless.wal.buffer import WalBuffer
from proxy.process import open_files
from proxy.process.memory import MemoryBudget
from proxy.server.reload import Reloader, ReloadOutcome
from proxy.storage import open_storage
from tests.unit.assembly.built import parts_of

RELOADABLE = [one for one in all_settings() if one.reloadable]
OTHERS = [one for one in all_settings() if not one.reloadable]
OTHER_VALUES: dict[str, Any] = {
    "limits.max_connections": 50,
    "log_level": "debug",
    "log_format": "json",
    "racks.by_network": {"10.0.0.0/8": "rack-b"},
}


def wal_of(parts: Parts) -> WalBuffer:
    """Return the WAL of a proxy that has no workers."""
    assert parts.diskless.buffer is not None
    return parts.diskless.buffer


KEPT: dict[str, Callable[[Parts], object]] = {
    "brokers.metadata_refresh_ms": lambda parts: parts.replicas.replicas.interval_s,
    "brokers.defaults_refresh_ms": lambda parts: (
        parts.replicas.replica_selector.interval_s,
        parts.topics.topic_defaults.interval_s,
    ),
    "diskless_append_buffer_max_bytes": lambda parts: wal_of(parts).max_bytes,
    "diskless_append_commit_interval_ms": lambda parts: (
        wal_of(parts).timer.interval_s,
        wal_of(parts).timer.budget.per_second,
        [*parts.process.stats.produce_seconds.by_interval_ms][-1],
    ),
    "diskless_append_commit_timeout_ms": lambda parts: wal_of(parts).commit_timeout_s,
    "diskless_append_max_uploads": lambda parts: wal_of(parts)._uploads._value,
    "diskless_append_puts_per_second": lambda parts: wal_of(parts).timer.budget.per_second,
    "diskless_append_underway": lambda parts: wal_of(parts).timer.max_underway,
    "fetch.cache_bytes": lambda parts: parts.diskless.cache.capacity_bytes,
    "fetch.coordinates_max_age_ms": lambda parts: parts.diskless.reader.coordinates.max_age_s,
    "fetch.cold_after_ms": lambda parts: parts.diskless.rows.cold_after_ms,
    "fetch.cold_cache_bytes": lambda parts: parts.diskless.cold_cache.capacity_bytes,
    "fetch.max_decompressed_batch_bytes": lambda parts: parts.diskless.time_lookup.max_batch_bytes,
    "fetch.replica_answer_bytes_max": lambda parts: parts.replicas.replica_memory.limit_bytes,
    "fetch.replica_shun_ms": lambda parts: parts.replicas.shunned.shun_s,
    "fetch.replica_topics_remembered": lambda parts: parts.replicas.replicas.max_topics,
    "fetch.replica_compare_interval_ms": lambda parts: parts.replicas.log_ends.interval_s,
    "fetch.replica_partitions_compared": lambda parts: parts.replicas.log_ends.max_partitions,
    "fetch.read_ahead_bytes": lambda parts: parts.diskless.reader.read_ahead_bytes,
    "fetch.shortest_read_wait_ms": lambda parts: parts.diskless.reader.shortest_wait_s,
    "limits.max_connections": lambda parts: parts.clients.connections.max_connections,
    "limits.max_counted_topics": lambda parts: parts.process.stats.max_counted_topics,
    "limits.max_request_bytes_in_memory": lambda parts: parts.process.memory.limit_bytes,
    "max_decompressed_batch_bytes": lambda parts: parts.diskless.intake.max_decompressed_bytes,
    "max_held_batches": lambda parts: wal_of(parts).holds.max_batches,
    "max_prepared_batch_records": lambda parts: parts.diskless.intake.max_records,
    "out_of_order_hold_ms": lambda parts: wal_of(parts).holds.hold_s,
    "racks.by_network": lambda parts: parts.routing.racks._networks.rack_of("10.1.2.3"),
    "racks.client_id_keys": lambda parts: parts.routing.racks._hints,
    "replication.check_interval_ms": lambda parts: parts.creation.replication_keeper.interval_s,
    "replication.partitions_at_once": lambda parts: parts.creation.completion.partitions_at_once,
    "rollups.retention_ms": lambda parts: parts.accounting.rollup_expiry.retention_ms,
}
"""Copy of each setting that a part keeps; all other parts read their settings at each use."""


def path_of(setting: Setting) -> str:
    return ".".join(setting.path)


def other_value(setting: Setting, value: Any) -> Any:
    """Return a different value; its meaning does not matter, because nothing reads it here."""
    if path_of(setting) in OTHER_VALUES:
        return OTHER_VALUES[path_of(setting)]
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, tuple):
        return (*value, "x")
    if isinstance(value, dict):
        return {**value, "x": "y"}
    if isinstance(value, SecretStr):
        return SecretStr("x")
    assert value is None
    return Path("/x")


def changed(settings: Settings, setting: Setting) -> Settings:
    wanted = settings.model_copy(deep=True)
    write(wanted, {setting: other_value(setting, value_of(settings, setting))})
    return wanted


def reloaded(settings: Settings, wanted: Settings, parts: Parts | None = None) -> ReloadOutcome:
    return Reloader(settings, None, lambda names: parts.take_settings(names) if parts else None).apply(wanted)


@pytest.mark.parametrize("setting", RELOADABLE, ids=path_of)
async def test_a_reload_brings_what_a_start_brings(settings: Settings, setting: Setting) -> None:
    wanted = changed(settings, setting)
    kept = KEPT.get(path_of(setting))
    parts = parts_of(settings) if kept is not None else None
    outcome = reloaded(settings, wanted, parts)
    assert (outcome.applied, outcome.needs_restart, outcome.error) == ((setting.name,), (), None)
    assert value_of(settings, setting) == value_of(wanted, setting)
    if kept is not None and parts is not None:
        assert kept(parts) == kept(parts_of(wanted))
        assert kept(parts) != kept(parts_of(changed(wanted, setting))) or path_of(setting) in OTHER_VALUES


@pytest.mark.parametrize("setting", OTHERS, ids=path_of)
async def test_a_setting_that_needs_a_restart_is_rejected_and_keeps_its_value(
    settings: Settings, setting: Setting
) -> None:
    before = value_of(settings, setting)
    if setting.is_section:
        wanted = settings.model_copy(deep=True)
        section: BaseModel = wanted
        for name in setting.path[:-1]:
            section = getattr(section, name)
        section.__dict__[setting.path[-1]] = None
    else:
        wanted = changed(settings, setting)
    untouched = settings.model_copy(deep=True)
    outcome = reloaded(settings, wanted)
    assert (outcome.applied, outcome.needs_restart, outcome.error) == ((), (setting.name,), None)
    assert before is not MISSING
    assert settings == untouched


class _Read:
    """Records the paths of settings that are read."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: set[str] = set()
        self._prefixes = {id(settings): ""} | dict(_prefixes(settings, ""))
        for model in {type(settings), *(type(one) for _, one in _sections(settings))}:
            monkeypatch.setattr(model, "__getattribute__", self._watch(model.__getattribute__))

    def _watch(self, get: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def watched(section: Any, name: str) -> Any:
            prefix = self._prefixes.get(id(section))
            if prefix is not None:
                self.paths.add(prefix + name)
            return get(section, name)

        return watched


def _sections(model: BaseModel) -> Iterator[tuple[str, BaseModel]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield name, value
            yield from _sections(value)


def _prefixes(model: BaseModel, prefix: str) -> Iterator[tuple[int, str]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield id(value), f"{prefix}{name}."
            yield from _prefixes(value, f"{prefix}{name}.")


async def test_a_part_is_notified_of_the_settings_that_it_keeps(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that is read while the parts are built is kept by one of them; all others are read at use."""
    with monkeypatch.context() as patches:
        read = _Read(settings, patches)
        parts_of(settings)
        kept = {path_of(one) for one in RELOADABLE} & read.paths
    assert "racks.by_network" in kept
    assert kept <= KEPT.keys(), "add each to the `take_settings` of its room in proxy/assembly, and to KEPT here"
    assert {path_of(one) for one in RELOADABLE} >= KEPT.keys()


async def test_the_budget_is_that_of_the_whole_proxy(settings: Settings) -> None:
    settings.__dict__.update(workers=4, diskless_append_puts_per_second=6.0)
    assert wal_of(parts_of(settings)).timer.budget.per_second == 6.0
    settings.__dict__.update(diskless_append_puts_per_second=0, diskless_append_commit_interval_ms=500)
    assert wal_of(parts_of(settings)).timer.budget.per_second == 2.0


async def test_near_reads_take_descriptors_from_clients(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "raise_limit", lambda: 10_000)
    (setting,) = (one for one in RELOADABLE if path_of(one) == "fetch.read_near_replicas")
    allowed = []
    for near in (True, False):
        write(settings, {setting: not near})
        parts, wanted = parts_of(settings), settings.model_copy(deep=True)
        write(wanted, {setting: near})
        assert reloaded(settings, wanted, parts).applied == ("fetch.read_near_replicas",)
        allowed.append(parts.clients.connections.max_connections)
    assert 0 < allowed[0] < allowed[1] < 10_000


async def test_parts_hold_the_settings_themselves(settings: Settings) -> None:
    """A read at each use works only if the part reads the same section object that a reload writes."""
    parts = parts_of(settings)
    assert parts.process.settings is settings
    assert parts.clients.connections._limits is settings.limits
    assert parts.replicas.replica_connections._settings is settings.fetch
    assert parts.brokers.cluster._settings is settings
    assert parts.accounting.rollups._settings is settings.rollups
    assert parts.diskless.index_watch._settings is settings.redis
    assert parts.stores.coordinator._settings is settings.redis
    assert parts.housekeeping.housekeeper._settings is settings
    assert parts.housekeeping.housekeeper._garbage._settings is settings.garbage


def test_every_setting_that_may_change_is_read_somewhere() -> None:
    root = Path(__file__).parents[3] / "proxy"
    sources = (source for source in root.rglob("*.py") if root / "config" not in source.parents)
    read = set(re.findall(r"\.([a-z0-9_]+)\b", "".join(source.read_text() for source in sources)))
    # The log line has its name as text.
    read |= {"contended_frame_timeout_ms"}
    assert {one.path[-1] for one in RELOADABLE} <= read


async def test_a_part_that_fails_reverts_everything(settings: Settings) -> None:
    calls = []

    def apply_change(names: Any) -> None:
        calls.append((set(names), settings.limits.max_frame_bytes))
        if len(calls) == 1:
            raise RuntimeError("no")

    wanted = settings.model_copy(deep=True)
    for setting in RELOADABLE:
        if path_of(setting) in ("limits.max_frame_bytes", "prices.get_usd_per_thousand"):
            write(wanted, {setting: 4096})
    before = settings.model_copy(deep=True)
    outcome = Reloader(settings, None, apply_change).apply(wanted)
    assert outcome.applied == ()
    assert outcome.error is not None
    assert settings == before
    names = {"limits.max_frame_bytes", "prices.get_usd_per_thousand"}
    assert calls == [(names, 4096), (names, before.limits.max_frame_bytes)]


def test_a_smaller_budget_accepts_nothing_until_it_is_met() -> None:
    budget, granted = MemoryBudget(100), list[str]()

    def grant(name: str) -> Callable[[], bool]:
        return lambda: granted.append(name) is None

    assert budget.try_take(80, grant("first"))
    budget.resize(50)
    assert not budget.try_take(10, grant("second"))
    budget.give_back(20)
    assert granted == []
    budget.resize(70)
    assert granted == ["second"]


async def test_a_smaller_cache_evicts_at_once_and_keeps_room_for_a_block(tmp_path: Path, settings: Settings) -> None:
    cache = BlockCache(DirectReads(open_storage(settings.storage, "")), capacity_bytes=1_000, block_bytes=100)
    for number in range(10):
        cache.insert(bytes([number]) * 16, bytearray(100))
    assert cache.used_bytes == 1_000
    cache.resize(350)
    assert cache.used_bytes == 300
    cache.resize(10)
    assert (cache.capacity_bytes, cache.used_bytes) == (100, 100)
    cache.resize(1_000)
    cache.insert(b"x" * 16, bytearray(100))
    assert cache.used_bytes == 200
