"""Repeated keys of a settings file, spellings of names, and masked secrets that were left in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.cli import app
from proxy.config import ConfigError, load_settings

GOOD = """\
rack: rack-a
brokers: {bootstrap: ["127.0.0.1:9092"]}
redis: {url: "redis://127.0.0.1:6379"}
storage: {url: "file:///wal"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "proxy.yaml"


def refusal(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        ("rack: rack-b\n", "line 5, column 1: rack is there already, in line 1, and only one of them would count"),
        ("limits: {max_connections: 9}\nlimits: {}\n", "line 6, column 1: limits is there already, in line 5, "),
        ("limits:\n  a: 1\n  b: 2\n  a: 3\n", "line 8, column 3: a is there already, in line 6, "),
        (
            "diskless.append.commit.interval.ms: 100\ndiskless_append_commit_interval_ms: 50\n",
            "diskless_append_commit_interval_ms: is also there as diskless.append.commit.interval.ms; remove one of ",
        ),
    ],
)
def test_a_repeated_setting_is_rejected(file: Path, addition: str, expected: str) -> None:
    assert expected in refusal(file, GOOD + addition)


def test_a_value_from_an_anchor_may_be_overridden(file: Path) -> None:
    shared = "limits: &shared {max_connections: 9, max_frame_bytes: 4096}\n"
    file.write_text(GOOD.replace('redis: {url: "', 'redis: {<<: &r {url: "redis://elsewhere"}, url: "') + shared)
    settings = load_settings(file)
    assert (settings.redis.url, settings.limits.max_connections) == ("redis://127.0.0.1:6379", 9)


@pytest.mark.parametrize("name", ["diskless.append.commit.interval.ms", "diskless-append-commit-interval-ms"])
def test_a_setting_is_named_as_the_file_writes_it(file: Path, name: str) -> None:
    assert f"{file}: {name}: Input should be a valid integer" in refusal(file, f"{GOOD}{name}: often\n")


@pytest.mark.parametrize("value", ["1", "1.5", "true", "2024-01-01"])
def test_text_that_yaml_reads_as_another_type_needs_quotes(file: Path, value: str) -> None:
    text = refusal(file, GOOD.replace("rack-a", value, 1))
    assert f"{file}: rack: Input should be a valid string" in text
    assert text.endswith("; put it in quotes")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DISKLESS_PROXY_REDIS", '{"url"'),
        ("diskless_proxy_redis", '{"url": "redis://:hush@r"'),
        ("DISKLESS_PROXY_BROKERS__BOOTSTRAP", '["hush'),
    ],
)
def test_a_variable_that_is_cut_off_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("DISKLESS_PROXY_REDIS__SHARDS", "4")
    text = refusal(file, GOOD)
    assert text == f"the environment: {name} is not JSON; write a section as JSON, or use one variable for each setting"


SECRETS = """\
rack: rack-a
brokers:
  bootstrap: ["127.0.0.1:9092"]
  security_protocol: SASL_PLAINTEXT
  sasl: {username: proxy, password: hush}
redis: {url: "redis://user:hush@127.0.0.1:6379/0?password=hush"}
storage: {url: "s3://bucket/wal", access_key_id: known, secret_access_key: hush}
additional_listeners:
- {name: secure, bootstrap_port: 1, broker_port_start: 10, tls: {certificate_file: /a, key_password: hush}}
"""


def test_the_mask_of_show_is_rejected_as_a_secret(file: Path) -> None:
    file.write_text(SECRETS)
    shown = CliRunner().invoke(app, ["config", "show", "--config", str(file), "--yaml"])
    assert shown.exit_code == 0, shown.output
    text = refusal(file, shown.output)
    names = ("brokers.sasl.password", "redis.url", "storage.secret_access_key")
    for name in (*names, "additional_listeners.0.tls.key_password"):
        assert f"{name}: has *** instead of a secret, as config show prints it; write the secret there" in text
    done = CliRunner().invoke(app, ["check", "--config", str(file), "--json"])
    places = [one["where"].rpartition(": ")[2] for one in json.loads(done.stdout)["findings"]]
    assert places == ["additional_listeners.0.tls.key_password", *names]
