"""The principal of a connection, taken from its SASL messages."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.client.principal import ANONYMOUS, UNKNOWN_USER, SaslObserver

FAILED = 58
"""SASL_AUTHENTICATION_FAILED."""
SECRET = "pa55word"


def jwt(**claims: object) -> str:
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    return b".".join([*encoded, SECRET.encode()]).decode()


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def authenticated(mechanism: str, *tokens: bytes, observer: SaslObserver | None = None) -> str:
    observer = observer or SaslObserver()
    observer.observe_handshake(mechanism)
    for token in tokens:
        observer.observe_token(token)
        observer.observe_outcome(0)
    return observer.user


@pytest.mark.parametrize(
    ("mechanism", "tokens", "user"),
    [
        ("PLAIN", [b"\0alice\0" + SECRET.encode()], "alice"),
        ("PLAIN", [b"alice\0alice\0" + SECRET.encode()], "alice"),
        ("PLAIN", ["\0Zoë\0x".encode()], "Zoë"),
        ("SCRAM-SHA-256", [b"n,,n=alice,r=nonce", b"c=biws,r=nonce,p=proof"], "alice"),
        ("SCRAM-SHA-512", [b"n,a=alice,n=alice,r=nonce", b"c=biws,r=nonce,p=proof"], "alice"),
        ("SCRAM-SHA-512", [b"n,,n=a=2Cb=3D2C,r=nonce,tokenauth=true", b"c=biws,r=nonce,p=proof"], "a,b=2C"),
        ("OAUTHBEARER", [bearer(jwt(sub="alice"))], "alice"),
        ("OAUTHBEARER", [bearer(jwt(sub="root"))[:-1] + bearer(jwt(sub="alice"))[3:]], "alice"),
        ("OAUTHBEARER", [bearer(jwt(sub="root")).replace(b"auth", b"AUTH", 1)], UNKNOWN_USER),
        ("OAUTHBEARER", [bearer("opaque")], UNKNOWN_USER),
        ("OAUTHBEARER", [bearer(jwt(sub=7))], UNKNOWN_USER),
        ("OAUTHBEARER", [bearer(jwt(name="alice"))], UNKNOWN_USER),
        ("GSSAPI", [b"\x60\x82\x02"], UNKNOWN_USER),
        ("PLAIN", [b"no separators"], UNKNOWN_USER),
        ("PLAIN", [b"\0" + b"a" * 600_000 + b"\0x"], UNKNOWN_USER),
        ("SCRAM-SHA-256", [b"y,,n=alice,r=nonce", b""], UNKNOWN_USER),
    ],
)
def test_the_user_of_each_mechanism(mechanism, tokens, user):
    assert authenticated(mechanism, *tokens) == user


def test_the_claim_can_be_another_one():
    observer = SaslObserver("client_id")
    assert authenticated("OAUTHBEARER", bearer(jwt(sub="x", client_id="app")), observer=observer) == "app"


def test_a_client_has_no_principal_before_the_broker_accepts_it():
    observer = SaslObserver()
    observer.observe_handshake("SCRAM-SHA-256")
    for token in (b"n,,n=alice,r=nonce", b"c=biws,r=nonce,p=proof"):
        observer.observe_token(token)
        assert observer.user == ANONYMOUS
        observer.observe_outcome(0)
    assert observer.user == "alice"


def test_a_failure_changes_nothing():
    observer = SaslObserver()
    observer.observe_handshake("PLAIN")
    observer.observe_token(b"\0root\0guess")
    observer.observe_outcome(FAILED)
    assert observer.user == ANONYMOUS
    assert authenticated("PLAIN", b"\0alice\0x", observer=observer) == "alice"
    observer.observe_handshake("PLAIN")
    observer.observe_token(b"\0root\0guess")
    observer.observe_outcome(FAILED)
    assert observer.user == "alice"


def test_a_bad_bearer_token_proves_nothing():
    """The server reports this in an answer without error code, which the client must acknowledge (RFC 7628)."""
    observer = SaslObserver()
    assert authenticated("OAUTHBEARER", bearer(jwt(sub="root")), observer=observer) == "root"
    observer.observe_token(b"\x01")
    observer.observe_outcome(FAILED)
    assert observer.user == ANONYMOUS


def test_a_client_may_authenticate_again():
    observer = SaslObserver()
    assert authenticated("PLAIN", b"\0alice\0x", observer=observer) == "alice"
    assert authenticated("SCRAM-SHA-512", b"n,,n=bob,r=1", b"c=biws,r=1,p=x", observer=observer) == "bob"


def test_a_pipelined_attempt_does_not_inherit_the_success_before_it():
    observer = SaslObserver()
    observer.observe_handshake("PLAIN")
    observer.observe_token(b"\0alice\0right")
    observer.observe_token(b"\0root\0wrong")
    observer.observe_outcome(0)
    assert observer.user == "alice"


def test_no_secret_is_kept():
    observer = SaslObserver()
    authenticated("PLAIN", b"\0alice\0" + SECRET.encode(), observer=observer)
    authenticated("OAUTHBEARER", bearer(jwt(sub="alice")), observer=observer)
    assert "alice" in str(vars(observer))
    assert SECRET not in str(vars(observer))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("handshake"), st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "X"])),
            st.tuples(st.just("token"), st.binary() | st.binary().map(lambda data: bearer("a." + data.hex()))),
            st.tuples(st.just("outcome"), st.sampled_from([0, FAILED])),
        )
    )
)
def test_no_input_breaks_it(messages):
    observer = SaslObserver()
    for kind, value in messages:
        getattr(observer, f"observe_{kind}")(value)
    assert isinstance(observer.user, str)
