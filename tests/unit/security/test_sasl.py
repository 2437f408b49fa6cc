"""The SASL mechanisms, compared with the examples of their RFCs and a hand-written server."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.security.sasl import OAuthBearer, Plain, SaslError, Scram, refusal

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


def test_plain_is_one_token() -> None:
    mechanism = Plain("tim", "tanstaaftanstaaf")
    assert mechanism.respond(b"") == b"\0tim\0tanstaaftanstaaf"  # RFC 4616, section 4
    assert mechanism.respond(b"") is None


def test_scram_sha_256_is_that_of_rfc_7677() -> None:
    mechanism = Scram("sha256", "user", "pencil", make_nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    assert mechanism.respond(b"") == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert mechanism.respond(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()) == (
        f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert mechanism.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert mechanism.respond(b"") is None


class Server:
    """The other side of SCRAM; its password may be another one."""

    def __init__(self, digest: str, password: str) -> None:
        self._digest = digest
        self._password = password.encode()

    def challenge(self, first: bytes) -> bytes:
        self._first = first.decode().removeprefix("n,,")
        self._server_first = f"r={self._first.partition(',r=')[2]}server,s={base64.b64encode(b'salt').decode()},i=4096"
        return self._server_first.encode()

    def final(self, final: bytes) -> tuple[bool, bytes]:
        """Return whether the client knows the password, and the proof that the server does."""
        without, _, proof = final.decode().rpartition(",p=")
        message = f"{self._first},{self._server_first},{without}".encode()
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, b"salt", 4096)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), message, self._digest)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        own = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), message, self._digest)
        return base64.b64decode(proof) == expected, b"v=" + base64.b64encode(own)


@given(digest=st.sampled_from(["sha256", "sha512"]), username=NAMES, password=NAMES)
def test_scram_proves_the_password_and_checks_the_servers(digest: str, username: str, password: str) -> None:
    mechanism, server = Scram(digest, username, password), Server(digest, password)
    first = mechanism.respond(b"") or b""
    name = first.decode().removeprefix("n,,n=").partition(",r=")[0]
    assert "," not in name
    assert name.replace("=2C", ",").replace("=3D", "=") == username
    known, proof = server.final(mechanism.respond(server.challenge(first)) or b"")
    assert known
    assert mechanism.respond(proof) is None


def test_scram_without_the_password_is_noticed_on_both_sides() -> None:
    mechanism, server = Scram("sha256", "user", "mine"), Server("sha256", "theirs")
    known, proof = server.final(mechanism.respond(server.challenge(mechanism.respond(b"") or b"")) or b"")
    assert not known
    with pytest.raises(SaslError, match="did not prove that it knows the password"):
        mechanism.respond(proof)


@pytest.mark.parametrize(
    ("challenge", "error_text"),
    [
        (b"r=other,s=c2FsdA==,i=4096", "nonce"),
        (b"r=mine,s=c2FsdA==,i=4096", "nonce"),
        (b"r=mine2,i=4096", "no salt"),
        (b"r=mine2,s=!,i=4096", "no salt"),
        (b"r=mine2,s=c2FsdA==,i=many", "no salt"),
        (b"r=mine2,s=c2FsdA==,i=1", "1 iterations"),
        (b"r=mine2,s=c2FsdA==,i=99999999", "99999999 iterations"),
        (b"\xff", "not UTF-8"),
        (b"", "nonce"),
    ],
)
def test_an_invalid_challenge(challenge: bytes, error_text: str) -> None:
    mechanism = Scram("sha256", "user", "secret", make_nonce=lambda: "mine")
    mechanism.respond(b"")
    with pytest.raises(SaslError, match=error_text) as caught:
        mechanism.respond(challenge)
    assert "secret" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_challenge_is_answered_or_rejected(challenge: bytes) -> None:
    mechanism = Scram("sha512", "user", "secret")
    mechanism.respond(b"")
    with pytest.raises(SaslError):
        mechanism.respond(challenge)


@pytest.mark.parametrize(
    ("challenge", "error_text"), [(b"v=AAAA", "did not prove"), (b"e=no", "rejected the login: no"), (b"", "no sign")]
)
def test_a_last_message_that_proves_nothing(challenge: bytes, error_text: str) -> None:
    mechanism = Scram("sha256", "user", "pencil", make_nonce=lambda: "mine")
    mechanism.respond(b"")
    mechanism.respond(b"r=mine2,s=c2FsdA==,i=4096")
    with pytest.raises(SaslError, match=error_text):
        mechanism.respond(challenge)


def test_oauthbearer_is_one_token_and_acknowledges_a_refusal() -> None:
    mechanism = OAuthBearer("abc.def.")
    assert mechanism.respond(b"") == b"n,,\x01auth=Bearer abc.def.\x01\x01"
    assert mechanism.respond(b"") is None
    assert mechanism.respond(b'{"status":"invalid_token"}') == b"\x01"
    assert refusal(b'{"status":"invalid_token"}') == "invalid_token"
    assert refusal(b"<html>") == refusal(b"[]") == "no reason given"


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer b", "ä"])
def test_an_invalid_token(token: str) -> None:
    with pytest.raises(SaslError, match="a token can't have") as caught:
        OAuthBearer(token)
    assert token == "" or token not in str(caught.value)
