"""SaslHandshake v0 and its tokens without headers, as clients of Kafka 0.10 send them, with a hand-written client."""

from __future__ import annotations

import base64
import json

import pytest

from proxy.demo.ports import HOST
from proxy.demo.security import ADMIN, unsecured_token
from proxy.demo.stack import Stack
from proxy.protocol.api_keys import SASL_HANDSHAKE
from proxy.security.sasl import OAuthBearer, Plain, SaslMechanism, Scram
from proxy.wire.sasl import build_handshake, parse_handshake_response
from tests.support.secure_wire import tls_connection
from tests.support.wire import Wire

METADATA = 3
UNSUPPORTED_SASL_MECHANISM = 33


def connection(stack: Stack, *, direct: bool) -> Wire:
    """Connect with TLS only to broker 1, or to the proxy's listener for it."""
    port = stack.ports.broker(1) if direct else stack.ports.broker_port_start(0) + 1
    return Wire(tls_connection(stack, HOST, port))


def handshake(wire: Wire, mechanism: str) -> int:
    return parse_handshake_response(wire.ask_bytes(SASL_HANDSHAKE, 0, build_handshake(mechanism))).error_code


def exchange(wire: Wire, mechanism: SaslMechanism) -> list[int]:
    """Exchange tokens until the mechanism is done; return the lengths of the broker's tokens. Raises
    ConnectionError."""
    lengths = []
    token = mechanism.respond(b"")
    while token is not None:
        wire.send(token)
        answer = wire.receive()
        lengths.append(len(answer))
        token = mechanism.respond(answer)
    return lengths


def mechanism(stack: Stack, name: str, password: str | None = None) -> SaslMechanism:
    secret = password or stack.security.users[ADMIN]
    if name == "PLAIN":
        return Plain(ADMIN, secret)
    if name == "OAUTHBEARER":
        return OAuthBearer(unsecured_token(ADMIN, lifetime_s=-3600) if password else unsecured_token(ADMIN))
    return Scram({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[name], ADMIN, secret)


@pytest.mark.parametrize(
    ("name", "tokens"), [("PLAIN", 1), ("SCRAM-SHA-256", 2), ("SCRAM-SHA-512", 2), ("OAUTHBEARER", 1)]
)
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "proxied"])
def test_authentication_succeeds(secure: Stack, name: str, tokens: int, direct: bool) -> None:
    with connection(secure, direct=direct) as wire:
        assert handshake(wire, name) == 0
        lengths = exchange(wire, mechanism(secure, name))
        assert len(lengths) == tokens
        brokers = wire.ask(METADATA, 5, topics=(), allow_auto_topic_creation=False).brokers
        assert len(brokers) == 2
        # And again: the exchange has left no state.
        assert len(wire.ask(METADATA, 5, topics=(), allow_auto_topic_creation=False).brokers) == 2


@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "proxied"])
def test_a_wrong_password_ends_the_connection(secure: Stack, name: str, direct: bool) -> None:
    with connection(secure, direct=direct) as wire:
        assert handshake(wire, name) == 0
        with pytest.raises(ConnectionError):
            exchange(wire, mechanism(secure, name, "wrong"))


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "proxied"])
def test_a_rejected_token_is_explained_before_the_end(secure: Stack, direct: bool) -> None:
    with connection(secure, direct=direct) as wire:
        assert handshake(wire, "OAUTHBEARER") == 0
        bearer = mechanism(secure, "OAUTHBEARER", "expired")
        wire.send(bearer.respond(b"") or b"")
        assert "status" in json.loads(wire.receive())
        wire.send(b"\x01")
        assert wire.is_closed()


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "proxied"])
def test_a_mechanism_that_brokers_do_not_have(secure: Stack, direct: bool) -> None:
    with connection(secure, direct=direct) as wire:
        assert handshake(wire, "GSSAPI") == UNSUPPORTED_SASL_MECHANISM
        assert wire.is_closed()


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "proxied"])
def test_a_request_in_place_of_a_token_ends_the_connection(secure: Stack, direct: bool) -> None:
    with connection(secure, direct=direct) as wire:
        assert handshake(wire, "SCRAM-SHA-256") == 0
        with pytest.raises(ConnectionError):
            wire.ask(METADATA, 5, topics=(), allow_auto_topic_creation=False)


@pytest.mark.parametrize("size", [524_289, 100_000_000])
def test_an_endless_token_ends_the_connection(secure: Stack, size: int) -> None:
    with connection(secure, direct=False) as wire:
        assert handshake(wire, "PLAIN") == 0
        wire.send_beginning(size, b"\0user\0pass")
        assert wire.is_closed()


def test_the_password_is_in_no_log(secure: Stack) -> None:
    with connection(secure, direct=False) as wire:
        assert handshake(wire, "PLAIN") == 0
        with pytest.raises(ConnectionError):
            exchange(wire, Plain(ADMIN, "a-password-of-nobody"))
    log = secure.log_tail("proxy-rack-a", 100_000)
    assert "a-password-of-nobody" not in log
    assert base64.b64encode(b"a-password-of-nobody").decode() not in log
