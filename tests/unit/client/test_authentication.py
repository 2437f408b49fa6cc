"""The progress of a client's authentication, and the requests that pass meanwhile."""

from __future__ import annotations

import pytest

from proxy.client.authentication import Authentication
from proxy.wire.errors import ProtocolError
from proxy.wire.sasl import AuthenticateAnswer

MAX_BYTES, MAX_REQUESTS = 1_000, 20
PRODUCE, METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 0, 3, 17, 18, 36
SUCCESS = AuthenticateAnswer(0, None, b"", 0)
FAILURE = AuthenticateAnswer(58, "Authentication failed", b"", 0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authentication(clock: Clock) -> Authentication:
    return Authentication(True, clock, max_bytes=MAX_BYTES, max_requests=MAX_REQUESTS)


def refused(authentication: Authentication, api_key: int) -> str:
    with pytest.raises(ProtocolError) as caught:
        authentication.admit(api_key, 100)
    return str(caught.value)


def log_in(authentication: Authentication, lifetime_ms: int = 0) -> None:
    authentication.admit(HANDSHAKE, 30)
    authentication.handshake_begins("PLAIN", 1)
    authentication.handshake_answered(0)
    authentication.admit(AUTHENTICATE, 30)
    assert authentication.authenticate_answered(SUCCESS._replace(session_lifetime_ms=lifetime_ms))


def test_without_sasl_everything_passes(clock: Clock) -> None:
    authentication = Authentication(False, clock, max_bytes=MAX_BYTES, max_requests=MAX_REQUESTS)
    for api_key in (PRODUCE, HANDSHAKE, AUTHENTICATE, METADATA):
        authentication.admit(api_key, 10_000_000)
    authentication.handshake_begins("PLAIN", 0)
    assert not authentication.under_way
    assert not authentication.takes_token(5, b"token")


def test_before_authentication_only_its_own_messages_pass(authentication: Authentication) -> None:
    authentication.admit(API_VERSIONS, 10)
    authentication.admit(HANDSHAKE, 10)
    for api_key in (PRODUCE, METADATA, AUTHENTICATE):
        assert "came before authentication; set the client's security.protocol" in refused(authentication, api_key)


def test_during_authentication_only_tokens_pass(authentication: Authentication) -> None:
    authentication.handshake_begins("SCRAM-SHA-256", 1)
    authentication.handshake_answered(0)
    assert authentication.under_way
    for api_key in (PRODUCE, METADATA, HANDSHAKE, API_VERSIONS):
        assert "under way" in refused(authentication, api_key)
    authentication.admit(AUTHENTICATE, 10)


@pytest.mark.parametrize(
    ("mechanism", "rounds"), [("PLAIN", 1), ("OAUTHBEARER", 1), ("SCRAM-SHA-512", 2), ("GSSAPI", 1)]
)
def test_the_rounds_of_a_mechanism(authentication: Authentication, mechanism: str, rounds: int) -> None:
    authentication.handshake_begins(mechanism, 1)
    authentication.handshake_answered(0)
    outcomes = [authentication.authenticate_answered(SUCCESS) for _ in range(rounds)]
    assert outcomes == [False] * (rounds - 1) + [True]
    assert not authentication.under_way
    authentication.admit(PRODUCE, 10_000_000)


def test_more_tokens_of_an_unknown_mechanism_pass(authentication: Authentication) -> None:
    authentication.handshake_begins("GSSAPI", 1)
    assert authentication.authenticate_answered(SUCCESS._replace(auth_bytes=b"more"))
    authentication.admit(AUTHENTICATE, 100)
    assert authentication.authenticate_answered(SUCCESS)


def test_an_oauthbearer_rejection_is_not_a_success(authentication: Authentication) -> None:
    authentication.handshake_begins("OAUTHBEARER", 1)
    assert not authentication.authenticate_answered(SUCCESS._replace(auth_bytes=b'{"status":"invalid_token"}'))
    assert "under way" in refused(authentication, PRODUCE)


def test_a_failure_admits_no_client(authentication: Authentication) -> None:
    authentication.handshake_begins("PLAIN", 1)
    assert not authentication.authenticate_answered(FAILURE)
    assert "under way" in refused(authentication, PRODUCE)


def test_a_rejected_mechanism_admits_no_client(authentication: Authentication) -> None:
    authentication.handshake_begins("GSSAPI", 0)
    authentication.handshake_answered(33)
    assert not authentication.takes_token(1, b"\x60")
    assert "before authentication" in refused(authentication, PRODUCE)


def test_a_session_ends_unless_the_client_authenticates_again(authentication: Authentication, clock: Clock) -> None:
    log_in(authentication, lifetime_ms=5_000)
    clock.now_s += 4.9
    authentication.admit(PRODUCE, 10)
    log_in(authentication, lifetime_ms=5_000)
    clock.now_s += 4.9
    authentication.admit(PRODUCE, 10)
    clock.now_s += 0.2
    assert "after the end of the client's session" in refused(authentication, PRODUCE)
    log_in(authentication)
    clock.now_s += 1e6
    authentication.admit(PRODUCE, 10)


def test_a_handshake_that_comes_too_soon_leaves_the_client_in(authentication: Authentication) -> None:
    log_in(authentication)
    authentication.handshake_begins("PLAIN", 1)
    assert "under way" in refused(authentication, PRODUCE)
    authentication.handshake_answered(34)
    authentication.admit(PRODUCE, 10)


def test_what_is_too_large_for_sasl(authentication: Authentication) -> None:
    authentication.admit(HANDSHAKE, MAX_BYTES)
    with pytest.raises(ProtocolError, match=r"larger than limits\.max_unauthenticated_request_bytes"):
        authentication.admit(HANDSHAKE, MAX_BYTES + 1)
    log_in(authentication)
    authentication.admit(PRODUCE, MAX_BYTES + 1)
    with pytest.raises(ProtocolError, match=r"larger than limits\.max_unauthenticated_request_bytes"):
        authentication.admit(AUTHENTICATE, MAX_BYTES + 1)


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI"])
def test_a_token_without_header_that_is_too_large(authentication: Authentication, mechanism: str) -> None:
    authentication.handshake_begins(mechanism, 0)
    with pytest.raises(ProtocolError, match=r"larger than limits\.max_unauthenticated_request_bytes"):
        authentication.takes_token(MAX_BYTES + 1, b"\x60")


def test_too_many_requests_before_authentication(authentication: Authentication) -> None:
    for _ in range(MAX_REQUESTS):
        authentication.admit(API_VERSIONS, 10)
    with pytest.raises(ProtocolError, match=r"more than limits\.max_unauthenticated_requests"):
        authentication.admit(API_VERSIONS, 10)


def test_requests_after_authentication_have_no_number(authentication: Authentication) -> None:
    log_in(authentication)
    for _ in range(2 * MAX_REQUESTS):
        authentication.admit(PRODUCE, 10)


def test_tokens_without_header(authentication: Authentication) -> None:
    authentication.handshake_begins("SCRAM-SHA-256", 0)
    authentication.handshake_answered(0)
    assert authentication.takes_token(10, b"n,,n=user")
    assert not authentication.token_answered(b"r=")
    assert authentication.under_way
    assert authentication.takes_token(10, b"c=biws")
    assert authentication.token_answered(b"v=")
    assert not authentication.takes_token(10, b"\0\3\0\1")
    authentication.admit(METADATA, 10)
    with pytest.raises(ProtocolError, match="can't authenticate again"):
        authentication.handshake_begins("PLAIN", 0)


def test_the_first_request_after_gssapi_ends_its_tokens(authentication: Authentication) -> None:
    authentication.handshake_begins("GSSAPI", 0)
    authentication.handshake_answered(0)
    assert authentication.takes_token(10, b"\x60")
    assert not authentication.token_answered(b"\x60")
    assert authentication.under_way
    assert not authentication.takes_token(10, b"\0\3\0\1")
    authentication.admit(METADATA, 10)
