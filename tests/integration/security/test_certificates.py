"""Certificates on running proxies: renewed under open connections, and required from clients."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from proxy.demo.ports import HOST
from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack
from proxy.demo.waiting import wait_until
from tests.support.secure_wire import proxied_wire, tls_connection

METADATA = 3


def wait_for_log(stack: Stack, proxy: str, event: str, count: int) -> None:
    """Wait until a proxy has logged an event this many times."""
    wait_until(lambda: "" if logged(stack, proxy, event) >= count else f"no {event}", 30, Event(), str)


def logged(stack: Stack, proxy: str, event: str) -> int:
    return (stack.directory / "logs" / f"{proxy}.log").read_text().count(event)


def shown_certificate(stack: Stack) -> bytes:
    with tls_connection(stack, HOST, stack.ports.bootstrap(0)) as connection:
        return connection.getpeercert(binary_form=True) or b""


def test_a_renewed_certificate_is_shown_and_nothing_is_dropped(secure: Stack) -> None:
    before = shown_certificate(secure)
    with proxied_wire(secure, ADMIN) as open_before:
        reloaded, refused = (
            logged(secure, "proxy-rack-a", event) for event in ("certificates_reloaded", "certificates_not_reloaded")
        )
        path = secure.security.issue("listener")
        wait_for_log(secure, "proxy-rack-a", "certificates_reloaded", reloaded + 1)
        renewed = shown_certificate(secure)
        assert renewed != before
        good = path.read_bytes()
        path.write_text("half a file")
        wait_for_log(secure, "proxy-rack-a", "certificates_not_reloaded", refused + 1)
        assert shown_certificate(secure) == renewed
        path.write_bytes(good)
        wait_for_log(secure, "proxy-rack-a", "certificates_reloaded", reloaded + 2)
        answer = open_before.ask(METADATA, 5, topics=(), allow_auto_topic_creation=False)
        assert len(answer.brokers) == 2
    tail = secure.log_tail("proxy-rack-a", 1000)
    assert "listeners.tls.certificate_file: " in tail
    assert "name the right file" in tail


def test_a_new_ca_of_the_brokers_is_used(secure: Stack, tmp_path: Path) -> None:
    """The brokers keep their certificate; new connections fail while the CA file lacks its CA."""
    import trustme

    path = secure.security.ca_file
    own = path.read_bytes()
    reloaded = logged(secure, "proxy-rack-a", "certificates_reloaded")
    try:
        trustme.CA().cert_pem.write_to_path(str(path))
        wait_for_log(secure, "proxy-rack-a", "certificates_reloaded", reloaded + 1)
        context = ssl.create_default_context(cadata=own.decode())
        plain = socket.create_connection((HOST, secure.ports.bootstrap(0)), timeout=30)
        with context.wrap_socket(plain, server_hostname=HOST) as connection:
            connection.settimeout(30)
            assert connection.recv(1) == b""  # no broker could be reached for it
        assert "certificate is not accepted" in secure.log_tail("proxy-rack-a", 1000)
    finally:
        path.write_bytes(own)
        wait_for_log(secure, "proxy-rack-a", "certificates_reloaded", reloaded + 2)
    with proxied_wire(secure, ADMIN) as wire:
        assert len(wire.ask(METADATA, 5, topics=(), allow_auto_topic_creation=False).brokers) == 2


@pytest.fixture
def asking_port(secure: Stack) -> Iterator[int]:
    """Return the bootstrap port of a second port range of rack-b's proxy, which requires client certificates."""
    first = secure.ports.broker_port_start(1) + 10
    tls = {
        "certificate_file": str(secure.directory / "config" / "listener.pem"),
        "client_ca_file": str(secure.security.ca_file),
        "client_auth": "required",
    }
    listeners = {
        "name": "certificates",
        "host": HOST,
        "bootstrap_port": first,
        "broker_port_start": first,
        "broker_node_ids": "1-2",
        "tls": tls,
    }
    restart(secure, [listeners])
    yield first
    restart(secure, [])


def restart(stack: Stack, listeners: list[dict[str, object]]) -> None:
    stack.terminate_proxy("rack-b")
    stack.configure_proxy("rack-b", {"additional_listeners": listeners})
    stack.start_proxy("rack-b")


def test_clients_with_a_certificate_keep_their_sasl_user(secure: Stack, asking_port: int) -> None:
    certificate = secure.security.issue("alice", "alice.example.com")
    settings = {
        "bootstrap.servers": f"{HOST}:{asking_port}",
        **secure.security.client_settings(ADMIN),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(certificate),
    }
    cluster = AdminClient(settings).list_topics(timeout=30)
    assert {broker.port for broker in cluster.brokers.values()} == {asking_port + 1, asking_port + 2}
    del settings["ssl.certificate.location"], settings["ssl.key.location"]
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=3)
    assert "client showed no certificate, and client_auth is required" in secure.log_tail("proxy-rack-b", 200)
