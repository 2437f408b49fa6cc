"""`topics create`: the request to the proxy, and the proxy that gets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.create_topics.v7 import response
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner, Result

from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.cli import app
from proxy.config import Settings
from proxy.config.security import BrokerTls
from proxy.wire.cold import encode, milliseconds, read_request

SETTINGS = """\
rack: rack-a
listeners: {host: 0.0.0.0, bootstrap_port: 19192}
brokers: {bootstrap: ["127.0.0.1:9092"]}
redis: {url: "redis://127.0.0.1:6379"}
storage: {url: "file:///nowhere"}
"""


class Proxy:
    """A proxy that records requests and returns a given answer."""

    def __init__(self) -> None:
        self.topics: list[Any] = []
        self.addresses: list[tuple[str, int]] = []
        self.error = ErrorCode.none
        self.message: str | None = None
        self.away = False

    async def ask(self, connection: ServiceConnection, api_key: int, version: int, body: bytes) -> memoryview:
        self.addresses += connection._addresses()
        if self.away:
            raise BrokerUnreachable("127.0.0.1:19192: Connection refused")
        asked: Any = read_request(api_key, version, memoryview(body))
        self.topics += asked.topics
        (topic,) = asked.topics
        result = response.CreatableTopicResult(
            name=topic.name,
            topic_id=UUID(int=7),
            error_code=self.error,
            error_message=self.message,
            num_partitions=topic.num_partitions,
            configs=(),
        )
        answer = response.CreateTopicsResponse(throttle_time=milliseconds(0), topics=(result,))
        return memoryview(encode(answer))


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Proxy:
    made = Proxy()

    async def ask(connection: ServiceConnection, *asked: Any) -> memoryview:
        return await made.ask(connection, *asked)

    monkeypatch.setattr(ServiceConnection, "ask", ask)
    (tmp_path / "proxy.yaml").write_text(SETTINGS)
    monkeypatch.setenv("DISKLESS_PROXY_CONFIG", str(tmp_path / "proxy.yaml"))
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["topics", "create", *arguments])


def test_a_topic_is_diskless_with_the_configs_that_are_named(proxy: Proxy) -> None:
    done = run("orders", "--partitions", "12", "--config", "retention.ms=5", "--config", "cleanup.policy=delete")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("orders: created, diskless, 12 partitions, topic ID ")
    (topic,) = proxy.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("orders", 12, -1)
    assert {one.name: one.value for one in topic.configs} == {
        "diskless.enable": "true",
        "retention.ms": "5",
        "cleanup.policy": "delete",
    }
    assert proxy.addresses == [("127.0.0.1", 19192)]


def test_without_a_number_the_brokers_say_it_and_a_topic_may_be_classic(proxy: Proxy) -> None:
    assert "created, classic" in run("orders", "--config", "diskless.enable=false").output
    assert proxy.topics[0].num_partitions == -1


def test_the_settings_file_is_the_config_without_a_value(proxy: Proxy, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(SETTINGS.replace("19192", "19292"))
    assert run("orders", "--config", str(other), "--config", "retention.ms=5").exit_code == 0
    assert proxy.addresses == [("127.0.0.1", 19292)]
    assert run("orders", "--config", "a.yaml", "--config", "b.yaml").exit_code == 2


def test_what_the_proxy_rejects_is_said_in_its_words(proxy: Proxy) -> None:
    proxy.error, proxy.message = ErrorCode.topic_already_exists, "Topic 'orders' already exists."
    done = run("orders")
    assert done.exit_code == 1
    assert "error: orders was not created: Topic 'orders' already exists." in done.output


def test_without_a_proxy_the_remedy_is_named(proxy: Proxy) -> None:
    proxy.away = True
    done = run("orders")
    assert done.exit_code == 1
    assert "Connection refused); start the proxy, or name the settings file of one that runs here" in done.output


@pytest.mark.parametrize("pair", ["=5", " =x"])
def test_a_config_has_a_name(proxy: Proxy, pair: str) -> None:
    assert run("orders", "--config", pair).exit_code == 2
    assert not proxy.topics


@pytest.mark.parametrize(
    ("brokers", "listener_tls", "expected", "ca_file"),
    [
        ({}, False, "PLAINTEXT", None),
        ({}, True, "SSL", "mine.pem"),
        ({"security_protocol": "SSL", "tls": {"ca_file": "brokers.pem"}}, False, "PLAINTEXT", None),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl": {"username": "u", "password": "p"}},
            True,
            "SASL_SSL",
            "mine.pem",
        ),
    ],
)
def test_the_proxys_listeners_say_how_it_is_reached(
    brokers: dict[str, Any], listener_tls: bool, expected: str, ca_file: str | None
) -> None:
    from proxy.cli.topic_creation import _towards_the_proxy

    settings = Settings(
        rack="rack-a",
        listeners={"tls": {"certificate_file": "listener.pem"}} if listener_tls else {},
        brokers={"bootstrap": ["127.0.0.1:9092"], **brokers},
        redis={"url": "redis://127.0.0.1:6379"},
        storage={"url": "file:///nowhere"},
    )
    found = _towards_the_proxy(settings, "mine.pem").brokers
    assert found.security_protocol == expected
    assert found.tls == (None if ca_file is None else BrokerTls(ca_file=ca_file))
