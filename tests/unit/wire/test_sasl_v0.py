"""Tokens without headers: which frame is a token, and which is the first request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.apis import API_TABLE
from proxy.wire.errors import ProtocolError
from proxy.wire.header import request_header
from proxy.wire.sasl_v0 import MAX_GSSAPI_TOKENS, RawTokens

REQUESTS = [
    request_header(api.key, version, 7, "client")
    for api in API_TABLE.values()
    for version in range(api.lowest_version, api.highest_version + 1)
]


@pytest.mark.parametrize(("mechanism", "count"), [("PLAIN", 1), ("SCRAM-SHA-256", 2), ("SCRAM-SHA-512", 2)])
@given(tokens=st.lists(st.binary(max_size=50), min_size=2, max_size=2))
def test_so_many_frames_are_tokens_whatever_they_hold(mechanism: str, count: int, tokens: list[bytes]) -> None:
    raw = RawTokens(mechanism)
    for token in tokens[:count]:
        assert not raw.over
        assert raw.is_token(len(token), token)
        raw.answered(b"anything")
    assert raw.over
    assert not raw.is_token(len(REQUESTS[0]), REQUESTS[0])


def test_an_oauthbearer_refusal_is_acknowledged_with_one_more_token() -> None:
    raw = RawTokens("OAUTHBEARER")
    assert raw.is_token(4, b"n,,\x01")
    raw.answered(b"{}")
    assert not raw.over
    assert raw.is_token(1, b"\x01")
    assert raw.over


def test_an_oauthbearer_success_is_the_end() -> None:
    raw = RawTokens("OAUTHBEARER")
    assert raw.is_token(4, b"n,,\x01")
    raw.answered(b"")
    assert raw.over


@pytest.mark.parametrize("request_bytes", REQUESTS[:: len(REQUESTS) // 40])
def test_a_request_ends_the_tokens_of_gssapi(request_bytes: bytes) -> None:
    raw = RawTokens("GSSAPI")
    for token in (b"\x60\x82\x02\x01", b"", b"\x05\x04\x04\xff", b"\x60\x33"):
        assert raw.is_token(len(token), token)
        raw.answered(b"\x60")
    assert not raw.is_token(len(request_bytes), request_bytes)
    assert raw.over
    assert not raw.is_token(2, b"\x60\x01")


def test_a_request_does_not_stand_for_all_tokens_of_gssapi() -> None:
    """Otherwise a client that has sent no token would count as authenticated."""
    with pytest.raises(ProtocolError, match="in place of the first SASL token"):
        RawTokens("GSSAPI").is_token(len(REQUESTS[0]), REQUESTS[0])


def test_no_request_can_be_taken_for_a_token_of_gssapi() -> None:
    assert {request[0] for request in REQUESTS} == {0}
    assert max(API_TABLE) < 0x0500


def test_gssapi_ends_somewhere() -> None:
    raw = RawTokens("GSSAPI")
    for _ in range(MAX_GSSAPI_TOKENS - 1):
        assert raw.is_token(1, b"\x60")
    with pytest.raises(ProtocolError, match="SASL tokens for one authentication"):
        raw.is_token(1, b"\x60")


def test_a_mechanism_whose_end_nobody_knows() -> None:
    with pytest.raises(ProtocolError, match="use a client of Kafka"):
        RawTokens("X-PLUGIN")
