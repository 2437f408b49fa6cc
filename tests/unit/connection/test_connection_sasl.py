"""A client authenticates on its connection: which bytes go to the broker, and when."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aws_msk_iam_sasl_signer.MSKAuthTokenProvider import generate_auth_token

from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.principal import UNKNOWN_USER
from proxy.client.rights import RIGHTS
from proxy.handlers.sasl import Sasl
from proxy.wire.sasl import build_authenticate, build_handshake
from tests.support.msk_broker import Iam
from tests.unit.connection_double import METADATA, Sent, connected, frame, request, response, turns
from tests.unit.parts import settings_of

HANDSHAKE, AUTHENTICATE, LIST_GROUPS = 17, 36, 16
HANDSHAKE_DONE = struct.pack(">hi", 0, 0)
PLAIN = b"\0alice\0hush"


def authenticated(error_code: int = 0, lifetime_ms: int = 0) -> bytes:
    """The body of a SaslAuthenticate v1 response."""
    return struct.pack(">hhiq", error_code, -1, 0, lifetime_ms)


async def client(memory_bytes: int = 1 << 20) -> Sent:
    """A connection to a SASL listener of the brokers."""
    sasl = Sasl(settings_of())
    handlers: dict[int, Any] = {HANDSHAKE: sasl.handshake, AUTHENTICATE: sasl.authenticate}
    sent = await connected(handlers=handlers, memory_bytes=memory_bytes)
    sent.require_sasl()
    sent.client = sent.connect()
    await turns()
    return sent


async def exchange(sent: Sent, data: bytes, answer: bytes) -> list[bytes]:
    """Send a request and the broker's answer; return the bytes that the client got."""
    sent.send(data)
    await turns()
    sent.answer(answer)
    await turns()
    return sent.client.frames()


async def log_in(sent: Sent, lifetime_ms: int = 0) -> None:
    await exchange(sent, request(HANDSHAKE, 1, build_handshake("PLAIN"), version=1), response(1, HANDSHAKE_DONE))
    token = request(AUTHENTICATE, 2, build_authenticate(PLAIN), version=1)
    (received,) = await exchange(sent, token, response(2, authenticated(lifetime_ms=lifetime_ms)))
    assert received == struct.pack(">i", 2) + authenticated(lifetime_ms=lifetime_ms)


@pytest.mark.parametrize("session_token", [None, "IQoJb3JpZ2luX2VjE+/" + 1_500 * "t" + "=="])
async def test_the_token_of_an_aws_signer_passes_as_it_is(
    monkeypatch: pytest.MonkeyPatch, session_token: str | None
) -> None:
    """Clients of Amazon MSK: the token is a presigned request to a regional host, and not a JSON Web Token."""
    for name, value in (("ACCESS_KEY_ID", "AKID"), ("SECRET_ACCESS_KEY", "secret"), ("SESSION_TOKEN", session_token)):
        monkeypatch.setenv(f"AWS_{name}", value) if value else monkeypatch.delenv(f"AWS_{name}", raising=False)
    token, _ = generate_auth_token("eu-central-1")
    sent = await client()
    handshake = request(HANDSHAKE, 1, build_handshake("OAUTHBEARER"), version=1)
    await exchange(sent, handshake, response(1, HANDSHAKE_DONE))
    sent.broker.taken()
    bearer = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    authenticate = request(AUTHENTICATE, 2, build_authenticate(bearer), version=1)
    sent.send(authenticate)
    await turns()
    passed = sent.broker.taken()
    assert passed == authenticate
    iam = Iam("eu-central-1", "b-1", {"AKID": "secret"}, {"AKID": session_token} if session_token else {})
    assert iam.check_token(passed.partition(b"auth=Bearer ")[2].partition(b"\x01")[0].decode()) == "AKID"
    sent.answer(response(2, authenticated()))
    await turns()
    assert sent.connection.session.user == UNKNOWN_USER
    assert await exchange(sent, request(LIST_GROUPS, 3), response(3, b"groups"))


async def test_nothing_reaches_the_broker_before_authentication() -> None:
    sent = await client()
    sent.send(request(METADATA, 1))
    await turns()
    assert sent.client.aborted
    assert sent.broker.taken() == b""


async def test_after_it_everything_passes() -> None:
    sent = await client()
    await log_in(sent)
    assert sent.connection.session.user == "alice"
    sent.broker.taken()
    assert await exchange(sent, request(LIST_GROUPS, 3), response(3, b"groups"))
    assert sent.broker.taken() == request(LIST_GROUPS, 3)


async def test_requests_after_a_token_wait_for_the_brokers_answer() -> None:
    sent = await client()
    await exchange(sent, request(HANDSHAKE, 1, build_handshake("PLAIN"), version=1), response(1, HANDSHAKE_DONE))
    token = request(AUTHENTICATE, 2, build_authenticate(PLAIN), version=1)
    sent.broker.taken()
    sent.send(token + request(LIST_GROUPS, 3))
    await turns()
    assert sent.broker.taken() == token
    sent.answer(response(2, authenticated()))
    await turns()
    assert sent.broker.taken() == request(LIST_GROUPS, 3)


async def test_no_request_is_sent_as_the_client_while_it_authenticates() -> None:
    sent = await client()
    await log_in(sent)
    sent.send(request(HANDSHAKE, 3, build_handshake("PLAIN"), version=1))
    await turns()
    sent.broker.taken()
    with pytest.raises(BrokerUnreachable, match="authenticating"):
        await sent.connection.client.ask(None, METADATA, 9, b"")  # type: ignore[arg-type]
    assert sent.broker.taken() == b""


async def test_rights_are_forgotten_when_it_authenticates_again() -> None:
    sent = await client()
    await log_in(sent)
    sent.connection.session[RIGHTS] = "what was known"
    await log_in(sent)
    assert RIGHTS not in sent.connection.session


async def test_a_token_outside_of_an_exchange_changes_nothing() -> None:
    sent = await client()
    await log_in(sent)
    token = request(AUTHENTICATE, 3, build_authenticate(b"\0root\0hush"), version=1)
    assert await exchange(sent, token, response(3, authenticated(34)))
    assert sent.connection.session.user == "alice"


async def test_the_end_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = await client()
    await log_in(sent, lifetime_ms=1)
    ends_s = sent.now() + 0.001
    while sent.now() <= ends_s:
        await turns(1)
    sent.broker.taken()
    sent.send(request(LIST_GROUPS, 3))
    await turns()
    assert sent.client.aborted
    assert sent.broker.taken() == b""


async def test_tokens_without_header() -> None:
    sent = await client()
    (received,) = await exchange(sent, request(HANDSHAKE, 1, build_handshake("PLAIN")), response(1, HANDSHAKE_DONE))
    assert received == struct.pack(">i", 1) + HANDSHAKE_DONE
    sent.broker.taken()
    sent.send(frame(PLAIN) + request(LIST_GROUPS, 3))
    await turns()
    assert sent.broker.taken() == frame(PLAIN)
    sent.answer(frame(b""))
    await turns()
    assert sent.client.taken() == frame(b"")
    assert sent.broker.taken() == request(LIST_GROUPS, 3)
    assert sent.connection.session.user == "alice"
    assert sent.memory.used_bytes == 0


async def test_a_token_waits_for_memory_and_is_counted_once() -> None:
    sent = await client(memory_bytes=100)
    await exchange(sent, request(HANDSHAKE, 1, build_handshake("SCRAM-SHA-256")), response(1, HANDSHAKE_DONE))
    sent.broker.taken()
    assert sent.memory.try_take(90, lambda: True)
    sent.send(frame(b"n,,n=alice,r=0123456789"))
    await turns()
    assert sent.broker.taken() == b""
    sent.memory.give_back(90)
    await turns()
    assert sent.broker.taken() == frame(b"n,,n=alice,r=0123456789")
    sent.answer(frame(b"challenge"))
    await turns()
    assert sent.client.frames()[-1] == b"challenge"
    (received,) = await exchange(sent, frame(b"c=biws,r=0,p=proof"), frame(b"v=proof"))
    assert received == b"v=proof"
    assert sent.memory.used_bytes == 0
    assert await exchange(sent, request(LIST_GROUPS, 3), response(3, b"groups"))


async def test_a_broker_that_refuses_a_token_without_header_closes() -> None:
    sent = await client()
    await exchange(sent, request(HANDSHAKE, 1, build_handshake("PLAIN")), response(1, HANDSHAKE_DONE))
    sent.send(frame(PLAIN))
    await turns()
    sent.broker.close()
    await turns()
    assert sent.client.closing
    assert sent.client.taken() == b""
    assert sent.memory.used_bytes == 0
