"""The reference of settings: complete, with a unit for every number, and found by any spelling of a name."""

from __future__ import annotations

import pytest

from proxy.config import Settings
from proxy.config.reference import PREFIX, Setting, all_settings, named, near_names, sections
from proxy.config.section import section_of
from proxy.config.units import COUNT, human, unit_of
from scripts import configuration_page

NUMBERS = [one for one in all_settings() if one.type in ("whole number", "number")]


def by_name(name: str) -> Setting:
    (found,) = named(name)
    return found


@pytest.mark.parametrize("setting", all_settings(), ids=lambda one: one.name)
def test_every_setting_is_described(setting: Setting) -> None:
    assert setting.text.endswith((".", "`)", '"]`.')), setting.text
    assert setting.type
    assert setting.variable.startswith(PREFIX)


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda one: one.name)
def test_every_number_has_a_unit_or_is_a_count(setting: Setting) -> None:
    assert setting.unit
    assert setting.range, "a number without bounds"


def test_a_name_without_a_unit_is_found_out() -> None:
    with pytest.raises(ValueError, match="patience: its name contains no unit"):
        unit_of("patience")
    assert unit_of("shards") == COUNT
    assert unit_of("max_request_bytes_in_memory") == "bytes"
    assert unit_of("cross_rack_usd_per_gb") == "US dollars per gigabyte"


def test_no_section_is_forgotten() -> None:
    assert set(sections()) == {one.section for one in all_settings() if one.section}
    top = {name for name, field in Settings.model_fields.items() if section_of(field.annotation) is None}
    assert {one.path[0] for one in all_settings() if not one.section} == top


def test_a_setting_is_explained_completely() -> None:
    interval = by_name("diskless.append.commit.interval.ms")
    assert interval.path == ("diskless_append_commit_interval_ms",)
    assert (interval.type, interval.unit, interval.range) == ("whole number", "milliseconds", "at least 1")
    assert (interval.default_text, interval.reloadable) == ("250", True)
    assert interval.variable == "DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS"
    port = by_name("listeners.bootstrap_port")
    assert (port.unit, port.range, port.reloadable) == ("port", "1 to 65535", False)
    assert by_name("redis.url").default_text == "required"
    assert by_name("limits.max_frame_bytes").default_text == "104857600 (100 MiB)"
    assert by_name("leader_choice").range == "`sticky`, `round_robin`, `partition_hash`, `replica`"


@pytest.mark.parametrize(
    "name",
    [
        "diskless.append.commit.interval.ms",
        "diskless_append_commit_interval_ms",
        "DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS",
        "Diskless-Append-Commit-Interval-Ms",
    ],
)
def test_a_setting_has_many_names(name: str) -> None:
    assert [one.name for one in named(name)] == ["diskless.append.commit.interval.ms"]


def test_a_beginning_and_a_section_name_several() -> None:
    assert {one.name for one in named("fetch.cold")} == {
        "fetch.cold_after_ms",
        "fetch.cold_cache_bytes",
        "fetch.cold_block_bytes",
        "fetch.cold_max_gets",
    }
    assert {one.section for one in named("prices")} == {"prices"}
    assert named("brokers.sasl")[0].is_section
    assert named("") == named("colour") == ()


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("limits.max_frames_bytes", "limits.max_frame_bytes"),
        ("cache_bytes", "fetch.cache_bytes"),
        ("limits.cache_bytes", "fetch.cache_bytes"),
        ("diskless.append.interval.ms", "diskless.append.commit.interval.ms"),
        ("listener", "listeners"),
        ("redis.uri", "redis.url"),
    ],
)
def test_similar_names_are_suggested(wrong: str, meant: str) -> None:
    assert meant in near_names(wrong)


def test_unrelated_names_get_no_suggestion() -> None:
    assert near_names("zzzzzz") == ()


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (104_857_600, "bytes", "100 MiB"),
        (65_536, "bytes", "64 KiB"),
        (1_000_000, "bytes", ""),
        (604_800_000, "milliseconds", "7 days"),
        (60_000, "milliseconds", "1 minute"),
        (250, "milliseconds", ""),
        (16, "count", ""),
    ],
)
def test_large_numbers_are_eased(value: int, unit: str, expected: str) -> None:
    assert human(value, unit) == expected


def test_the_page_has_every_setting_once() -> None:
    headings = [line for line in configuration_page.page().splitlines() if line.startswith("### ")]
    assert sorted(headings) == sorted(f"### `{one.name}`" for one in all_settings() if not one.is_section)
