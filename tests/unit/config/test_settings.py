"""Settings: an error is one line that names the setting, the cause and the remedy."""

from __future__ import annotations

import json
import traceback
from operator import attrgetter
from pathlib import Path

import pytest

from proxy.config import Brokers, ConfigError, load_settings, parse_address, parse_node_ids
from proxy.storage import open_storage
from proxy.storage.file import FileStorage

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


@pytest.mark.parametrize("name", ["diskless.storage.class.name", "diskless.storage.class.path"])
def test_both_of_kip_1163s_names_choose_the_storages_class(tmp_path: Path, name: str) -> None:
    settings = load_settings(written(tmp_path, GOOD + f"{name}: proxy.storage.file:FileStorage\n"))
    assert type(open_storage(settings.storage, settings.storage_class)) is FileStorage
    assert settings.storage_class == "proxy.storage.file:FileStorage"


@pytest.mark.parametrize(
    ("addition", "path", "expected"),
    [
        ("brokers: {bootstrap: 'a:1'}\n", "brokers.bootstrap", ("a:1",)),
        ("brokers: {bootstrap: 'a:1, [::1]:2'}\n", "brokers.bootstrap", ("a:1", "[::1]:2")),
        ("default_diskless_topics: 'logs,.*'\n", "default_diskless_topics", ("logs,.*",)),
        ("fetch: {leader_read_topics: 'a|b'}\n", "fetch.leader_read_topics", ("a|b",)),
        ("racks: {client_id_keys: zone}\n", "racks.client_id_keys", ("zone",)),
        ("admin: {allowed_hosts: me.example.com}\n", "admin.allowed_hosts", ("me.example.com",)),
    ],
)
def test_a_single_text_is_a_list_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addition: str, path: str, expected: tuple[str, ...]
) -> None:
    base = GOOD if "bootstrap" not in addition else GOOD.replace('brokers: {bootstrap: ["127.0.0.1:9092"]}\n', "")
    assert attrgetter(path)(load_settings(written(tmp_path, base + addition))) == expected
    said = ",".join(expected) if "bootstrap" in path else expected[0]
    monkeypatch.setenv("DISKLESS_PROXY_" + path.upper().replace(".", "__"), said)
    assert attrgetter(path)(load_settings(written(tmp_path, GOOD))) == expected
    monkeypatch.setenv("DISKLESS_PROXY_" + path.upper().replace(".", "__"), json.dumps(expected))
    assert attrgetter(path)(load_settings(written(tmp_path, GOOD))) == expected


def test_the_schema_takes_one_text_for_a_list() -> None:
    branches = Brokers.model_json_schema()["properties"]["bootstrap"]["anyOf"]
    assert {branch["type"] for branch in branches} == {"string", "array"}


def test_the_environment_stands_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLESS_PROXY_LISTENERS__BOOTSTRAP_PORT", "20000")
    monkeypatch.setenv("DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS", "9")
    settings = load_settings(written(tmp_path, GOOD + "listeners: {bootstrap_port: 1, host: 127.0.0.2}\n"))
    assert settings.listeners.bootstrap_port == 20000
    assert settings.listeners.host == "127.0.0.2"
    assert settings.diskless_append_commit_interval_ms == 9


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("colour: red\n", "colour: no such setting; see docs/configuration.md"),
        ("limits: {max_frames: 3}\n", "limits.max_frames: no such setting"),
        ("prices: -1\n", "prices: has to be a section with settings (it is -1)"),
        ("log_level: loud\n", "log_level: Input should be 'debug', 'info', 'warning' or 'error' (it is 'loud')"),
        ("listeners: {broker_node_ids: 1-x}\n", "broker_node_ids: '1-x' is neither a node ID nor a range"),
        ("listeners: {bootstrap_port: 19101}\n", "bootstrap_port 19101 is also the port of a broker"),
        ("listeners: {broker_port_start: 65530}\n", "is 65539, above port 65535"),
        ("fleet: {lease_ms: 1500}\n", "lease_ms must be at least twice heartbeat_interval_ms"),
        ("default_diskless_topics: ['(']\n", "'(' is not a regular expression"),
        (
            "default_diskless_topics: '*'\n",
            "'*' is not a regular expression: nothing to repeat at position 0; write '.*'",
        ),
        ("default_diskless_topics: ['a', '*-log']\n", "write '.*-log'"),
        ("fetch: {leader_read_topics: ['*(']}\n", "; fix it"),
        ("fetch: {leader_read_topics: ['(']}\n", "'(' is not a regular expression"),
        ("diskless.storage.class.path: /opt/plugin/*.jar\n", "'/opt/plugin/*.jar' is not module:Class; install"),
        (
            "diskless.storage.class.name: file\ndiskless.storage.class.path: a:B\n",
            "diskless.storage.class.name is 'file' and diskless.storage.class.path is 'a:B'; set one of them",
        ),
        ("diskless.append.commit.interval.ms: 0\n", "diskless.append.commit.interval.ms: Input should be greater"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, addition: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(written(tmp_path, GOOD + addition))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("FETCH__REPLICA_CONNECTIONS_MAX", "0", "fetch.replica_connections_max: Input should be greater"),
        ("fetch", '{"replica_connections_max": 0}', "fetch.replica_connections_max: Input should be greater"),
        ("BROKERS", '{"bootstrap": ["localhost:9092", 1]}', "brokers.bootstrap.1: Input should be a valid string"),
        ("PRICES", "-1", "prices: has to be a section"),
        ("FETCH__COLOUR", "red", "fetch.colour: no such setting"),
    ],
)
def test_an_error_in_the_environment_is_not_reported_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(f"DISKLESS_PROXY_{name}", value)
    file = written(tmp_path, GOOD)
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert f"environment variable DISKLESS_PROXY_{name}: {message}" in str(caught.value)
    assert str(file) not in str(caught.value)


def test_an_error_in_the_file_is_not_reported_for_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISKLESS_PROXY_FETCH", '{"replica_idle_ms": -1}')
    file = written(tmp_path, GOOD + "fetch: {replica_grace_ms: -2, replica_idle_ms: 5}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    in_file, in_environment = str(caught.value).split("; environment variable DISKLESS_PROXY_FETCH: ")
    assert in_file.startswith(f"{file}: fetch.replica_grace_ms: ")
    assert in_environment.startswith("fetch.replica_idle_ms: ")


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="redis: is missing; add it"):
        load_settings(written(tmp_path, GOOD.replace("redis:", "#")))


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    text = GOOD.replace('url: "file:///tmp/wal"', "url: 's3://b', secret_access_key: [hush]")
    with pytest.raises(ConfigError) as caught:
        load_settings(written(tmp_path, text))
    assert "secret_access_key" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("user:hush@host:6379", "use redis://host:port/db"),
        ("redis:/user:hush@host:6379", "names no host"),
        ("rediss:", "names no host"),
        ("redis://user:1/hush@host", "has an @ after its host"),
        ("redis://user:hush@[host", "is not a URL"),
        ("redis://user:hush\u2100@host", "is not a URL"),
    ],
)
def test_a_mistyped_store_url_is_rejected_without_its_secret(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_settings(written(tmp_path, GOOD.replace("redis://127.0.0.1:6379", url)))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("*hush", "line 5, column 11: found undefined alias …; fix it there"),
        ("!hush", "could not determine a constructor for the tag …; fix it"),
        ("!hush'hush x", "could not determine a constructor for the tag …; fix it"),
        ("!hush!hush x", "found undefined tag handle …"),
        ("@hush", "found character … that cannot start any token"),
        ("hush\n\tproxy_id: hush", "line 6, column 1 is a tab; indent with spaces"),
    ],
)
def test_text_that_yaml_quotes_is_not_shown(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_settings(written(tmp_path, f"{GOOD}password: {line}\n"))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("value", ["2026-13-45", "!!int hush", "!!timestamp hush", "!!bool hush", "[" * 600])
def test_values_that_yaml_cannot_build_are_rejected_in_one_line(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="looks like a date or a number but is not one") as caught:
        load_settings(written(tmp_path, f"{GOOD}proxy_id: {value}\n"))
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"), [("", "contains no settings"), ("a: [", "is not YAML"), ("- 1\n", "contains no settings")]
)
def test_a_file_that_holds_no_settings(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(written(tmp_path, text))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="No such file or directory; name an existing file with --config or DISKLESS_PROXY_CONFIG"
    ):
        load_settings(tmp_path / "none.yaml")


def test_node_ids_and_addresses() -> None:
    assert parse_node_ids("3,1-2, 7") == (1, 2, 3, 7)
    assert parse_address("[::1]:9092") == ("::1", 9092)
    for text in ("host", "host:", ":1", "host:0", "host:70000"):
        with pytest.raises(ValueError, match="is not host:port"):
            parse_address(text)


@pytest.mark.parametrize(
    ("racks", "message"),
    [
        ("by_network: {10.1.0.0/99: rack-a}", "is not a network such as 10.1.0.0/16"),
        ("by_network: {10.1.0.1/16: rack-a}", "has host bits set"),
        ("by_network: {10.1.0.0/16: ''}", "the rack of 10.1.0.0/16 is empty"),
        ("aliases: {us-east-1a: ''}", "'us-east-1a': '' needs two names"),
        ("aliases: {a: b, b: c}", "'a' is an alias of 'b', which is an alias itself"),
        ("client_id_keys: ['a=b']", "is not a key"),
    ],
)
def test_implausible_racks(tmp_path: Path, racks: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(written(tmp_path, f"{GOOD}\nracks: {{{racks}}}\n"))


def test_racks_of_networks_and_other_systems_keys(tmp_path: Path) -> None:
    text = f"{GOOD}\nracks: {{by_network: {{10.1.0.0/16: rack-b}}, client_id_keys: [ws_az]}}\n"
    racks = load_settings(written(tmp_path, text)).racks
    assert (racks.by_network, racks.client_id_keys) == ({"10.1.0.0/16": "rack-b"}, ("ws_az",))


def test_aliases_of_racks_apply_to_the_racks_of_proxy_and_listeners(tmp_path: Path) -> None:
    text = (
        f"{GOOD.replace('rack-a', 'us-east-1a')}\nlisteners: {{rack: us-east-1b}}\n"
        "additional_listeners: [{name: b, rack: us-east-1a, bootstrap_port: 9292, broker_port_start: 9300}]\n"
        "racks: {aliases: {us-east-1a: use1-az4, us-east-1b: use1-az6}}\n"
    )
    settings = load_settings(written(tmp_path, text))
    assert settings.rack == "use1-az4"
    assert [one.rack for one in settings.all_listeners] == ["use1-az6", "use1-az4"]


SASL = "sasl: {mechanism: PLAIN, username: proxy, password: hush}"


def secured(brokers: str = "", listeners: str = "", more: str = "") -> str:
    """Settings with these in the sections `brokers` and `listeners`."""
    text = GOOD.replace('["127.0.0.1:9092"]', '["127.0.0.1:9092"]' + (f", {brokers}" if brokers else ""))
    return text + (f"listeners: {{{listeners}}}\n" if listeners else "") + more


CLIENT_CERTIFICATES = "tls: {certificate_file: c.pem, client_ca_file: ca.pem, client_auth: required}"
OWN_CERTIFICATE = "tls: {certificate_file: c.pem}"


@pytest.mark.parametrize(
    "text",
    [
        secured(f"security_protocol: SASL_SSL, {SASL}"),
        secured(f"security_protocol: SASL_PLAINTEXT, {SASL}", CLIENT_CERTIFICATES),
        secured(f"security_protocol: SASL_SSL, {SASL}, {OWN_CERTIFICATE}", CLIENT_CERTIFICATES),
        secured("security_protocol: SSL"),
        secured("security_protocol: SSL", "tls: {certificate_file: c.pem}"),
        secured(f"security_protocol: SSL, {OWN_CERTIFICATE}", more="shared_principal: true\n"),
        secured("", CLIENT_CERTIFICATES, "shared_principal: true\n"),
        secured("security_protocol: SASL_SSL, sasl: {mechanism: OAUTHBEARER, token_file: t}"),
    ],
)
def test_security_that_can_be(tmp_path: Path, text: str) -> None:
    assert load_settings(written(tmp_path, text)).brokers.bootstrap


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (secured("security_protocol: SASL_SSL"), "but sasl is missing; give the proxy credentials of its own"),
        (secured(SASL), "sasl has no effect with security_protocol PLAINTEXT"),
        (secured("tls: {ca_file: ca.pem}"), "tls has no effect with security_protocol PLAINTEXT"),
        (
            secured("security_protocol: SASL_SSL, sasl: {mechanism: PLAIN, password: hush}"),
            "brokers.sasl: PLAIN needs a username",
        ),
        (
            secured("security_protocol: SASL_SSL, sasl: {username: proxy}"),
            "brokers.sasl: SCRAM-SHA-512 takes either password or password_file",
        ),
        (
            secured("security_protocol: SASL_SSL, sasl: {mechanism: OAUTHBEARER}"),
            "brokers.sasl: OAUTHBEARER takes either token_file or client_credentials_file",
        ),
        (
            secured("security_protocol: SASL_SSL, sasl: {mechanism: OAUTHBEARER, token_file: t, password: hush}"),
            "brokers.sasl: OAUTHBEARER takes no username and no password",
        ),
        (
            secured("security_protocol: SASL_SSL, sasl: {username: p, password: hush, token_file: t}"),
            "brokers.sasl: SCRAM-SHA-512 takes no token",
        ),
        (secured("security_protocol: SSL, tls: {key_file: k.pem}"), "brokers.tls: key_file has no effect without"),
        (
            secured("", "tls: {certificate_file: c.pem, client_auth: required}"),
            "listeners.tls: client_auth is required, but client_ca_file is empty; name the clients' CA",
        ),
        (
            secured("", "tls: {certificate_file: c.pem, client_ca_file: ca.pem}"),
            "listeners.tls: client_ca_file has no effect while client_auth is none",
        ),
    ],
)
def test_security_that_does_not_fit(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(written(tmp_path, text))
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("auth", ["required", "requested"])
@pytest.mark.parametrize("brokers", ["", "security_protocol: SSL"])
def test_client_certificates_without_sasl_are_rejected(tmp_path: Path, auth: str, brokers: str) -> None:
    text = secured(brokers, CLIENT_CERTIFICATES.replace("required", auth))
    with pytest.raises(ConfigError, match=rf"listeners\.tls\.client_auth is {auth}, .* set shared_principal to true"):
        load_settings(written(tmp_path, text))


def test_client_certificates_without_sasl_are_rejected_in_additional_listeners(tmp_path: Path) -> None:
    more = (
        f"additional_listeners: [{{name: tls, bootstrap_port: 3000, broker_port_start: 3001, {CLIENT_CERTIFICATES}}}]\n"
    )
    with pytest.raises(ConfigError, match=r"additional_listeners\[0\]\.tls\.client_auth is required"):
        load_settings(written(tmp_path, secured(more=more)))


def test_the_proxys_own_certificate_without_sasl_is_rejected(tmp_path: Path) -> None:
    text = secured(f"security_protocol: SSL, {OWN_CERTIFICATE}")
    with pytest.raises(ConfigError, match=r"brokers\.tls\.certificate_file .* makes every client the principal"):
        load_settings(written(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("redis://127.0.0.1:6379", "http://user:hush@127.0.0.1"),
        GOOD + "brokers: {bootstrap: [x], sasl: {password: hush}}\n",
        GOOD + "a: {password: hush: hush}\n",
        GOOD + "password: hush\n\tb: c\n",
        secured("sasl: {password: [hush]}"),
        secured("sasl: {password: hush, colour: red}"),
        secured("sasl: hush"),
        secured("", "tls: {certificate_file: c.pem, key_password: [hush]}"),
        secured("", "tls: hush"),
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(written(tmp_path, text))
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_the_environment_is_not_shown_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLESS_PROXY_BROKERS", '{"sasl": {"password": "hush"')
    with pytest.raises(ConfigError, match="the environment: ") as caught:
        load_settings(written(tmp_path, GOOD))
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_settings_don_t_show_secrets_when_printed(tmp_path: Path) -> None:
    text = secured(f"security_protocol: SASL_SSL, {SASL}").replace("redis://", "redis://user:hush@")
    settings = load_settings(written(tmp_path, text))
    assert "hush" in settings.redis.url
    assert "hush" not in repr(settings)
    assert "hush" not in str(settings.brokers.sasl)
