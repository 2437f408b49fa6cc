"""Headers agree with kio and the table of APIs."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from proxy.wire.errors import ProtocolError
from proxy.wire.header import parse_request_header, request_header, response_header, response_header_length

_KEYS = [0, 1, 3, 7, 12, 17, 18, 36, 47, 60, 68, 78]
_KNOWN = [
    (key, version) for key in _KEYS if key in api_key_map for version in sorted(schema_name_map[api_key_map[key]])
]


@pytest.mark.parametrize(("api_key", "api_version"), _KNOWN)
@given(correlation_id=st.integers(-(2**31), 2**31 - 1), client_id=st.none() | st.text(max_size=9))
def test_request_headers_are_those_of_kio(api_key, api_version, correlation_id, client_id):
    header_type = load_request_schema(api_key, api_version).__header_schema__
    encoded = request_header(api_key, api_version, correlation_id, client_id)
    header, size = entity_reader(header_type)(encoded, 0)
    assert size == len(encoded)
    assert (header.request_api_key, header.request_api_version) == (api_key, api_version)
    assert (header.correlation_id, header.client_id) == (correlation_id, client_id)
    assert parse_request_header(encoded + b"body") == (api_key, api_version, correlation_id, client_id, len(encoded))


@pytest.mark.parametrize(("api_key", "api_version"), _KNOWN)
def test_response_headers_are_those_of_kio(api_key, api_version):
    header_type = load_response_schema(api_key, api_version).__header_schema__
    encoded = response_header(api_key, api_version, 1234)
    stream = io.BytesIO()
    entity_writer(header_type)(stream, header_type(correlation_id=1234))
    assert encoded == stream.getvalue()
    assert response_header_length(api_key, api_version, encoded + b"\x05body") == len(encoded)


def test_unknown_tags_in_headers_are_skipped():
    tags = b"\x02" + b"\x03" + b"\xc8\x01" + bytes(200) + b"\x84\x07" + b"\x00"
    encoded = request_header(3, 12, 5, "c")[:-1] + tags
    assert parse_request_header(encoded + b"body").body_offset == len(encoded)
    encoded = response_header(3, 12, 5)[:-1] + tags
    assert response_header_length(3, 12, encoded + b"body") == len(encoded)


def test_an_unknown_api_key_still_has_its_client_id():
    encoded = b"\x7f\x00" + b"\x00\x05" + bytes(4) + b"\x00\x03abc" + b"\x00"
    assert parse_request_header(encoded)[:4] == (0x7F00, 5, 0, "abc")


@pytest.mark.parametrize("size", range(13))
def test_short_headers_raise_the_one_error(size):
    with pytest.raises(ProtocolError):
        parse_request_header(request_header(3, 12, 1, "ab")[:size])


def test_a_client_id_that_is_not_text_is_read_as_brokers_do():
    header = parse_request_header(bytes(8) + b"\x00\x02\xff\xff" + b"body")
    assert (header.client_id, header.body_offset) == ("\ufffd\ufffd", 12)


def test_such_a_client_id_of_long_characters_fits_too():
    client_id = 8_000 * "\U0001f600".encode() + 767 * b"\xff"
    header = parse_request_header(bytes(8) + len(client_id).to_bytes(2, "big") + client_id)
    assert header.client_id.startswith("\U0001f600" * 8_000)
    assert parse_request_header(request_header(3, 0, 1, header.client_id)).client_id == header.client_id


@pytest.mark.parametrize("bad", [10_922, 12_000, 32_767])
def test_such_a_client_id_still_fits_where_it_is_sent_on(bad):
    header = parse_request_header(bytes(8) + bad.to_bytes(2, "big") + b"\xff" * bad + b"body")
    assert header.body_offset == 10 + bad
    assert (
        parse_request_header(request_header(3, 0, 1, header.client_id)).client_id
        == header.client_id
        == "\ufffd" * 10_922
    )


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", bytes(4), bytes(4) + b"\x01\x00\x05"])
def test_short_response_headers_raise_the_one_error(frame):
    with pytest.raises(ProtocolError):
        response_header_length(3, 12, frame)
