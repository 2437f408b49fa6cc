"""Settings: what is wrong is told in one line that names the setting, the cause and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config import ConfigError, load_settings, parse_address, parse_node_ids

GOOD = """\
rack: rack-a
brokers: {bootstrap: ["127.0.0.1:9092"]}
redis: {url: "redis://127.0.0.1:6379"}
storage: {url: "file:///tmp/wal"}
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "proxy.yaml"
    path.write_text(text)
    return path


def test_kafka_names_are_settings(tmp_path: Path) -> None:
    text = GOOD + "diskless.append.commit.interval.ms: 7\ndiskless.storage.class.name: file\n"
    settings = load_settings(written(tmp_path, text))
    assert settings.diskless_append_commit_interval_ms == 7
    assert settings.diskless_storage_class_name == "file"


def test_the_environment_stands_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLESS_PROXY_LISTENERS__BOOTSTRAP_PORT", "20000")
    monkeypatch.setenv("DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS", "9")
    settings = load_settings(written(tmp_path, GOOD + "listeners: {bootstrap_port: 1, host: 127.0.0.2}\n"))
    assert settings.listeners.bootstrap_port == 20000
    assert settings.listeners.host == "127.0.0.2"
    assert settings.diskless_append_commit_interval_ms == 9


@pytest.mark.parametrize(
    ("addition", "told"),
    [
        ("colour: red\n", "colour: no such setting; see docs/configuration.md"),
        ("limits: {max_frames: 3}\n", "limits.max_frames: no such setting"),
        ("log_level: loud\n", "log_level: Input should be 'debug', 'info', 'warning' or 'error' (it is 'loud')"),
        ("listeners: {broker_node_ids: 1-x}\n", "broker_node_ids: '1-x' is neither a node ID nor a range"),
        ("listeners: {bootstrap_port: 19101}\n", "bootstrap_port 19101 is also the port of a broker"),
        ("listeners: {broker_port_start: 65530}\n", "is 65539, above port 65535"),
        ("fleet: {lease_ms: 1500}\n", "lease_ms must be at least twice heartbeat_interval_ms"),
        ("default_diskless_topics: ['(']\n", "'(' is no regular expression"),
        ("diskless.append.commit.interval.ms: 0\n", "diskless_append_commit_interval_ms: Input should be greater"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, addition: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(written(tmp_path, GOOD + addition))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="redis: is missing; add it"):
        load_settings(written(tmp_path, GOOD.replace("redis:", "#")))


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    text = GOOD.replace('url: "file:///tmp/wal"', "url: 's3://b', secret_access_key: [hush]")
    with pytest.raises(ConfigError) as caught:
        load_settings(written(tmp_path, text))
    assert "secret_access_key" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"), [("", "holds no settings"), ("a: [", "is not YAML"), ("- 1\n", "holds no settings")]
)
def test_a_file_that_holds_no_settings(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_settings(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory; pass an existing file to --config"):
        load_settings(tmp_path / "none.yaml")


def test_node_ids_and_addresses() -> None:
    assert parse_node_ids("3,1-2, 7") == (1, 2, 3, 7)
    assert parse_address("[::1]:9092") == ("::1", 9092)
    for text in ("host", "host:", ":1", "host:0", "host:70000"):
        with pytest.raises(ValueError, match="is not host:port"):
            parse_address(text)
