"""Differences between a process's settings and a file's, and how they are written in place."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from proxy.config import load_settings
from proxy.config.live import differences, names, write

GOOD = """\
rack: rack-a
brokers: {bootstrap: ["127.0.0.1:9092"]}
redis: {url: "redis://127.0.0.1:6379"}
storage: {url: "file:///tmp/wal"}
"""


def settings_file(directory: Path, addition: str = "") -> Path:
    path = directory / "proxy.yaml"
    path.write_text(GOOD + addition)
    return path


def test_settings_that_may_change_and_settings_that_may_not(tmp_path: Path) -> None:
    live = load_settings(settings_file(tmp_path))
    wanted = load_settings(
        settings_file(
            tmp_path, "limits: {max_frame_bytes: 2048, tcp_keepalive_probes: 3}\nworkers: 2\nlog_level: debug\n"
        )
    )
    found = differences(live, wanted)
    assert set(names(found.reloadable)) == {"limits.max_frame_bytes", "log_level"}
    assert names(found.restart) == ("limits.tcp_keepalive_probes", "workers")
    held = live.limits
    before = write(live, found.reloadable)
    assert held is live.limits, "parts hold it"
    assert (held.max_frame_bytes, live.log_level) == (2048, "debug")
    assert (held.tcp_keepalive_probes, live.workers) == (6, 1)
    assert not differences(live, wanted).reloadable
    write(live, before)
    assert live == load_settings(settings_file(tmp_path))


def test_a_section_that_comes_is_named_once(tmp_path: Path) -> None:
    live = load_settings(settings_file(tmp_path))
    wanted = load_settings(settings_file(tmp_path, "listeners: {tls: {certificate_file: /a}}\n"))
    assert names(differences(live, wanted).restart) == ("listeners.tls",)
    changed = load_settings(settings_file(tmp_path, "listeners: {tls: {certificate_file: /b}}\n"))
    assert names(differences(wanted, changed).restart) == ("listeners.tls.certificate_file",)


def test_a_write_changes_no_defaults_and_no_other_settings(tmp_path: Path) -> None:
    live, other = load_settings(settings_file(tmp_path)), load_settings(settings_file(tmp_path))
    found = differences(live, load_settings(settings_file(tmp_path, "prices: {cross_rack_usd_per_gb: 7}\n")))
    write(live, found.reloadable)
    assert live.prices.cross_rack_usd_per_gb == 7
    assert other.prices.cross_rack_usd_per_gb == 0.02
    assert load_settings(settings_file(tmp_path)).prices.cross_rack_usd_per_gb == 0.02
    with pytest.raises(ValidationError):
        live.prices.cross_rack_usd_per_gb = 8
