"""Names of brokers on one port: each node ID has one name, and every other text has none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.config import Listeners
from proxy.config.values import HIGHEST_NODE_ID
from proxy.security.server_names import NameRejected, ServerNames

PATTERN = "broker-{node_id}.rack-a.kafka.example.com"
BOOTSTRAP = "bootstrap.rack-a.kafka.example.com"


def listeners(**settings: Any) -> Listeners:
    tls = {"certificate_file": "listener.pem"}
    return Listeners.model_validate(
        {"tls": tls, "advertised_host": BOOTSTRAP, "sni_broker_host": PATTERN, "broker_port_start": 65_530, **settings}
    )


def test_there_is_one_port_and_a_name_for_each_broker() -> None:
    by_name = listeners(bootstrap_port=9092)
    assert by_name.ports == {None: 9092}
    assert [by_name.port_of(node) for node in (None, 0, HIGHEST_NODE_ID)] == [9092] * 3
    assert by_name.host_of(7) == "broker-7.rack-a.kafka.example.com"
    assert by_name.host_of(None) == BOOTSTRAP


@given(st.integers(0, HIGHEST_NODE_ID))
def test_every_node_id_has_a_name(node_id: int) -> None:
    by_name = listeners()
    assert ServerNames(by_name).node_of(by_name.host_of(node_id)) == node_id


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (BOOTSTRAP, None),
        (BOOTSTRAP.upper() + ".", None),
        ("BROKER-7.rack-a.kafka.example.com", 7),
        ("broker-2147483647.rack-a.kafka.example.com", HIGHEST_NODE_ID),
    ],
)
def test_names_are_compared_without_their_case(name: str, expected: int | None) -> None:
    assert ServerNames(listeners()).node_of(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "broker-.rack-a.kafka.example.com",
        "broker-07.rack-a.kafka.example.com",
        "broker-+7.rack-a.kafka.example.com",
        "broker-7.rack-b.kafka.example.com",
        "broker-7.rack-a.kafka.example.com.evil.example",
        "broker-7",
        "broker-2147483648.rack-a.kafka.example.com",
        "broker-" + "9" * 5_000 + ".rack-a.kafka.example.com",
        "broker-٣.rack-a.kafka.example.com",
        "kafka.example.com",
        "10.0.0.1",
    ],
)
def test_other_names_select_no_broker(name: str) -> None:
    with pytest.raises(NameRejected, match="selects no broker") as caught:
        ServerNames(listeners()).node_of(name)
    assert caught.value.counted == "unknown"


@pytest.mark.parametrize("name", [None, ""])
def test_no_name_selects_no_broker(name: str | None) -> None:
    with pytest.raises(NameRejected) as caught:
        ServerNames(listeners()).node_of(name)
    assert caught.value.counted == "missing"


@given(st.text() | st.from_regex(r"broker-[0-9a-z.-]*\.rack-a\.kafka\.example\.com", fullmatch=True))
def test_any_text_selects_or_is_rejected(name: str) -> None:
    by_name = listeners()
    try:
        node_id = ServerNames(by_name).node_of(name)
    except NameRejected:
        return
    assert by_name.host_of(node_id) == name.lower().removesuffix(".")


@pytest.mark.parametrize(
    ("settings", "finding"),
    [
        ({"tls": None}, "set tls"),
        ({"advertised_host": ""}, "set advertised_host to a host name"),
        ({"advertised_host": "10.0.0.1"}, "set advertised_host to a host name"),
        ({"advertised_host": "Broker-3.rack-a.kafka.example.com"}, "is also the name of a broker"),
        ({"sni_broker_host": "broker.kafka.example.com"}, "does not contain {node_id} once"),
        ({"sni_broker_host": "{node_id}.{node_id}.example.com"}, "does not contain {node_id} once"),
        ({"sni_broker_host": "broker_{node_id}.example.com"}, "gives no host names"),
        ({"sni_broker_host": "broker-{node_id}.example.com:9092"}, "gives no host names"),
        ({"sni_broker_host": f"broker-{{node_id}}.{'a' * 64}.com"}, "gives no host names"),
    ],
)
def test_settings_that_give_no_names_are_rejected(settings: dict[str, Any], finding: str) -> None:
    with pytest.raises(ValidationError) as caught:
        listeners(**settings)
    assert finding in str(caught.value)
