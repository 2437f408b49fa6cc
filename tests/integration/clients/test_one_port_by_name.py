"""One TLS port per rack, selected by name: four client libraries work, and a broker that joins is served.

The proxies keep their ranges of ports, by which the test itself creates and reads topics.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pytest

from proxy.demo.admin import get
from proxy.demo.ports import HOST
from proxy.demo.proxies import merged
from proxy.demo.stack import Stack
from tests.support.applications import PARTITIONS, Applications
from tests.support.names import Names, names
from tests.support.stacks import short_lived
from tests.support.topics import CLASSIC, DISKLESS, create_topic, new_topic
from tests.support.waiting import wait_for

RACKS = ("rack-a", "rack-b")
LATE = 4
"""The broker that joins, in the second rack."""
CLIENTS = {"rack-a": ("java", "librdkafka"), "rack-b": ("go", "aiokafka")}
"""Client libraries by the rack where they bootstrap."""
DOMAIN = "kafka.example.com"


def host(rack: str, name: str) -> str:
    return f"{name}.{rack}.{DOMAIN}"


class NamedStack(Stack):
    """A stack whose proxies have one more port each, where names select the broker."""

    def name_port(self, rack: str) -> int:
        return self.ports.bootstrap(RACKS.index(rack)) + 3

    def named_bootstrap(self, rack: str) -> str:
        return f"{host(rack, 'bootstrap')}:{self.name_port(rack)}"

    def _proxy_settings(self, rack: str) -> dict[str, Any]:
        by_name = {
            "name": "by-name",
            "host": HOST,
            "bootstrap_port": self.name_port(rack),
            "advertised_host": host(rack, "bootstrap"),
            "sni_broker_host": host(rack, "broker-{node_id}"),
            # A wildcard, and no name of a broker.
            "tls": {"certificate_file": str(self.security.issue(rack, host(rack, "*")))},
        }
        return merged(super()._proxy_settings(rack), {"additional_listeners": [by_name]})


@pytest.fixture(scope="module")
def stack() -> Iterator[NamedStack]:
    options = short_lived(
        racks=RACKS,
        brokers_per_rack=2,
        brokers_started=LATE - 1,
        security="ssl",
        overrides={"brokers": {"metadata_refresh_ms": 1_000}},
    )
    with NamedStack(options) as stack:
        yield stack


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> Names:
    """Do what a wildcard record of DNS does: also the name of the broker that joins leads to the proxies."""
    labels = ("bootstrap", *(f"broker-{node}" for node in range(1, LATE + 2)))
    return names(tmp_path_factory.mktemp("names") / "hosts", [host(rack, label) for rack in RACKS for label in labels])


def test_four_clients_through_one_port_per_rack_while_a_broker_joins(stack: NamedStack, resolved: Names) -> None:
    proxies = {rack: stack.pid(f"proxy-{rack}") for rack in RACKS}

    def of_late_broker(client: str) -> list[str]:
        classic = f"{client}-led-by-{LATE}"
        create_topic(stack, classic, CLASSIC, assignment=[[LATE, 1]] * PARTITIONS)
        return [classic, new_topic(stack, f"{client}-late", DISKLESS, PARTITIONS)]

    with ExitStack() as running:
        before = [
            running.enter_context(Applications(stack, stack.named_bootstrap(rack), clients, within=resolved.within))
            for rack, clients in CLIENTS.items()
        ]
        for applications in before:
            applications.wait_for_more()
        # A second try finds it away again.
        running.callback(stack.stop_broker, LATE)
        stack.start_broker(LATE)
        for applications in before:
            applications.wait_for_more()
        # The only way to its partitions is its name.
        after = [
            running.enter_context(
                Applications(
                    stack,
                    stack.named_bootstrap(rack),
                    clients,
                    within=resolved.within,
                    topics_of=of_late_broker,
                )
            )
            for rack, clients in CLIENTS.items()
        ]
        for applications in (*before, *after):
            applications.wait_for_more()
        assert connections(stack, f"by-name broker {LATE}")
        for applications in (*before, *after):
            applications.finish()
    assert {rack: stack.pid(f"proxy-{rack}") for rack in RACKS} == proxies


def connections(stack: NamedStack, listener: str) -> list[dict[str, Any]]:
    """Return the connections of clients that came to a listener of the second rack's proxy."""
    status, text = get(stack.admin_url("rack-b"), f"/api/connections?contains={quote(listener)}", 10)
    assert status == 200, text
    return json.loads(text)["connections"]  # type: ignore[no-any-return]


def test_a_client_that_connects_to_an_address_is_turned_away_and_counted(stack: NamedStack) -> None:
    def ask(server_name: str) -> str:
        program = (
            "import socket, ssl, sys\n"
            "context = ssl.create_default_context(cafile=sys.argv[1]); context.check_hostname = False\n"
            "plain = socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=30)\n"
            "context.wrap_socket(plain, server_hostname=sys.argv[4]).recv(1)\n"
        )
        where = [str(stack.security.ca_file), HOST, str(stack.name_port("rack-a")), server_name]
        done = subprocess.run([sys.executable, "-c", program, *where], capture_output=True, text=True, check=False)
        return done.stderr

    assert "EOF" in ask(HOST) or "reset" in ask(HOST)
    assert "EOF" in ask(host("rack-b", "broker-1")) or "reset" in ask(host("rack-b", "broker-1"))
    wait_for(lambda: 'tls_server_names_rejected_total{reason="missing"}' in metrics(stack), "it is counted")
    counted = [line for line in metrics(stack).splitlines() if "tls_server_names_rejected_total{" in line]
    assert all(float(line.rpartition(" ")[2]) >= 1 for line in counted), counted
    assert "tls_server_name_rejected" in stack.process("proxy-rack-a").log_tail(200)


def metrics(stack: NamedStack) -> str:
    return get(stack.admin_url("rack-a"), "/metrics", 10)[1]


def test_check_tries_the_names(stack: NamedStack, resolved: Names) -> None:
    command = [sys.executable, "-m", "proxy", "check", "--config", str(stack.config_path("rack-a")), "--json"]

    def levels(command: list[str]) -> list[str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.loads(done.stdout)["findings"]
        return [
            one["level"]
            for one in found
            if one["where"] == "additional_listeners[0].sni_broker_host" and one["kind"] == "advertised addresses"
        ]

    live = sum(name.startswith("broker-") and one.running for name, one in stack.processes.items())
    assert levels(resolved.within(command)) == ["ok"] * (live + 1)
    # Without the names, those of live brokers are errors, and that of a broker that may join is a warning.
    assert levels(command) == ["error"] * live + ["warning"]
