"""`diskless-proxy config`: the values of a file, and the explanation of a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from proxy.cli import app
from proxy.config import load_settings

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "deploy" / "config").glob("*.yaml"))
SECRETS = """\
rack: rack-a
brokers:
  bootstrap: ["127.0.0.1:9092"]
  security_protocol: SASL_PLAINTEXT
  sasl: {username: proxy, password: hush-1}
redis: {url: "redis://user:hush-2@127.0.0.1:6379/0?password=hush-3"}
storage: {url: "s3://bucket/wal", access_key_id: known, secret_access_key: hush-4}
additional_listeners:
- {name: secure, bootstrap_port: 1, broker_port_start: 10, tls: {certificate_file: /a, key_password: hush-5}}
diskless.append.commit.interval.ms: 40
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["config", *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "proxy.yaml"
    path.write_text(SECRETS)
    return path


@pytest.mark.parametrize("form", ["--json", "--yaml", "--changed"])
def test_secrets_are_hidden(file: Path, form: str) -> None:
    done = run("show", "--config", str(file), form)
    assert done.exit_code == 0, done.output
    assert "hush" not in done.output
    assert "known" in done.output
    assert done.output.count("***") >= 4


def test_each_value_is_shown_with_its_origin(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLESS_PROXY_LIMITS", '{"max_connections": 9}')
    monkeypatch.setenv("diskless_proxy_prices__put_usd_per_thousand", "0.005")
    done = run("show", "--config", str(file), "--json")
    rows = {row["name"]: row for row in json.loads(done.output)["settings"]}
    assert (rows["rack"]["value"], rows["rack"]["source"], rows["rack"]["changed"]) == ("rack-a", "file", True)
    interval = rows["diskless.append.commit.interval.ms"]
    assert (interval["value"], interval["source"], interval["reload"]) == (40, "file", True)
    limit = rows["limits.max_connections"]
    assert (limit["value"], limit["source"], limit["variable"]) == (9, "environment", "DISKLESS_PROXY_LIMITS")
    assert (rows["limits.max_frame_bytes"]["source"], rows["limits.max_frame_bytes"]["changed"]) == ("default", False)
    price = rows["prices.put_usd_per_thousand"]
    assert (price["source"], price["changed"]) == ("environment", False), "it says what the default is"
    assert rows["brokers.tls"]["value"] is None
    assert "brokers.tls.ca_file" not in rows
    assert rows["brokers.sasl.password"]["secret"]
    assert rows["brokers.sasl.password"]["value"] == "***"
    assert rows["brokers.sasl.token_file"]["value"] == ""


def test_only_what_differs(file: Path) -> None:
    done = run("show", "--config", str(file), "--json", "--changed")
    names = {row["name"] for row in json.loads(done.output)["settings"]}
    assert {"rack", "redis.url", "brokers.sasl.password", "diskless.append.commit.interval.ms"} <= names
    assert not names & {"listeners.host", "limits.max_connections", "brokers.tls", "brokers.sasl.mechanism"}


def test_yaml_is_a_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLESS_PROXY_FETCH__CACHE_BYTES", "4096")
    path = ROOT / "deploy" / "config" / "msk.yaml"
    done = run("show", "--config", str(path), "--yaml")
    again = tmp_path / "again.yaml"
    again.write_text(done.output)
    assert load_settings(again) == load_settings(path)
    lines = [line.strip() for line in done.output.splitlines()]
    assert "cache_bytes: 4096  # DISKLESS_PROXY_FETCH__CACHE_BYTES" in lines
    assert "security_protocol: SASL_SSL  # file" in lines


def test_a_table_for_people(file: Path) -> None:
    done = run("show", "--config", str(file), "--changed")
    assert done.exit_code == 0
    assert "diskless.append.commit.interval.ms" in done.output
    assert "limits.max_frame_bytes" not in done.output


def test_an_invalid_file(tmp_path: Path) -> None:
    path = tmp_path / "proxy.yaml"
    path.write_text(SECRETS + "limit: {max_frame_bytes: 2048}\n")
    done = run("show", "--config", str(path))
    assert done.exit_code == 1
    assert "limit: no such setting; did you mean limits?" in done.output
    assert "hush" not in done.output
    assert run("show", "--config", str(path), "--json", "--yaml").exit_code == 1


def test_a_setting_is_explained() -> None:
    done = run("explain", "diskless.append.commit.interval.ms")
    assert done.exit_code == 0
    for part in ("milliseconds", "250", "at least 1", "reload (SIGHUP)", "KIP-1163", "COMMIT_INTERVAL_MS"):
        assert part in done.output


def test_sections_beginnings_and_several_names() -> None:
    done = run("explain", "prices", "fetch.cold_max", "--json")
    entries = json.loads(done.output)["settings"]
    assert [entry["name"] for entry in entries] == [
        "prices.cross_rack_usd_per_gb",
        "prices.put_usd_per_thousand",
        "prices.get_usd_per_thousand",
        "fetch.cold_max_gets",
    ]
    assert entries[-1]["reload"] is False
    assert "list prices" in run("explain", "prices").output
    required = json.loads(run("explain", "redis.url", "--json").output)["settings"][0]
    assert (required["required"], required["default"]) == (True, None)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [("limits.max_frames_bytes", "did you mean limits.max_frame_bytes"), ("zzzzzz", "the sections are listeners")],
)
def test_an_unknown_name(wrong: str, expected: str) -> None:
    done = run("explain", "rack", wrong)
    assert done.exit_code == 1
    assert f"{wrong}: no such setting" in done.output
    assert expected in done.output


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_used_and_is_explained(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    settings = load_settings(example)
    assert not settings.storage.secret_access_key, "a secret in an example is copied"
    assert settings.brokers.sasl is None or not settings.brokers.sasl.password.get_secret_value()
    assert settings.storage.url.split(":")[0] in {"s3", "gs", "az"}
    data = yaml.safe_load(example.read_text())
    hosts = [*settings.brokers.bootstrap, settings.redis.url, settings.storage.endpoint_url]
    hosts.append(settings.listeners.client_host)
    for host in hosts:
        named = "example.com" in host or host == "https://storage.googleapis.com" or ".demo.abcdef.c2.kafka." in host
        assert not host or named, host
    assert example.read_text().startswith("# A proxy")
    assert run("explain", *data).exit_code == 0, "each of its settings has an entry"
    shown = json.loads(run("show", "--config", str(example), "--json", "--changed").output)["settings"]
    assert {row["source"] for row in shown} == {"file"}


def test_there_are_examples_and_each_is_in_the_docs() -> None:
    assert {path.stem for path in EXAMPLES} == {
        "aws",
        "azure",
        "azure-managed-redis",
        "elasticache",
        "gcp",
        "memorydb",
        "memorystore",
        "minio",
        "msk",
        "sni",
        "strimzi",
        "valkey-operator",
    }
    page = (ROOT / "docs" / "configuration.md").read_text()
    for example in EXAMPLES:
        assert f"](../deploy/config/{example.name})" in page
