"""ApiVersions (API key 18), v0 to v4: clients are offered the versions that both broker and proxy know.

An unclamped answer breaks with each Kafka release, because clients then use versions that the proxy can't read.
Behaviour: hidden and unknown APIs are left out, ranges are cut, everything else (error code, throttle time, features)
stays. Produce stays listed from the broker's own lowest version, because librdkafka turns compression off otherwise.
Clients can be held at transaction version 1: then the feature `transaction.version` is 1 at most. The versions of APIs
stay, as at brokers of that level: a client that has begun with version 2 may reconnect, and must not end a transaction
in a version that keeps the producer's epoch (EndTxn v4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from proxy.protocol.api_keys import API_VERSIONS
from proxy.protocol.apis import API_TABLE, PROPOSED_VERSIONS, Treatment
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import (
    INT16,
    INT32,
    Buffer,
    check_end,
    parsing,
    read_count,
    read_string,
    read_tags,
    skip_tags,
    write_count,
    write_tags,
)

FIRST_WITH_FEATURES = _FIRST_FLEXIBLE = 3
"""First version whose response has the brokers' features, in tagged fields."""
_HIGHEST_VERSION = API_TABLE[API_VERSIONS].highest_version
_UNSUPPORTED_VERSION = 35
_RANGE = struct.Struct(">hhh")
_FINALIZED_FEATURES = 2
"""Tag of the features that all brokers use."""
_LEVELS = struct.Struct(">hh")
"""Highest and lowest level of a finalized feature."""
_TRANSACTION_VERSION = "transaction.version"


@parsing
def clamp_api_versions(
    body: Buffer, version: int, *, kip1163_api: bool = False, transactions_v1: bool = False
) -> list[Buffer]:
    """Return the body of a broker's response with the ranges that the table of APIs shares. Raises ProtocolError.

    With `kip1163_api` the proposed versions are offered too, if the broker has the versions below, to which they are
    translated. `transactions_v1`: clients are held at transaction version 1. An answer UNSUPPORTED_VERSION is read as
    v0, whatever version was requested.
    """
    if not 0 <= version <= _HIGHEST_VERSION:
        raise ProtocolError(f"ApiVersions v{version} is not parsed here")
    data = memoryview(body)
    (error_code,) = INT16.unpack_from(data)
    flexible = version >= _FIRST_FLEXIBLE and error_code != _UNSUPPORTED_VERSION
    count, at = read_count(data, 2, flexible)
    out, kept = bytearray(), 0
    for _ in range(count):
        key, lowest, highest = _RANGE.unpack_from(data, at)
        start = at + 6
        at = skip_tags(data, start) if flexible else start
        api = API_TABLE.get(key)
        if api is None or api.treatment is Treatment.HIDE:
            continue
        lowest, highest = max(lowest, api.lowest_version), min(highest, api.highest_version)
        if kip1163_api and highest == api.highest_version:
            highest = PROPOSED_VERSIONS.get(key, highest)
        if lowest <= highest:
            kept += 1
            out += _RANGE.pack(key, lowest, highest)
            out += data[start:at]
    check_end(data, at)
    rest = _with_transactions_v1(data, at) if transactions_v1 and flexible else data[at:]
    return [data[:2].tobytes() + write_count(kept if count >= 0 else count, flexible) + out, rest]


def _with_transactions_v1(data: memoryview, at: int) -> Buffer:
    """Return throttle time and tagged fields of a response, with the transaction version cut."""
    tags_at = at + INT32.size
    fields, end = read_tags(data, tags_at)
    check_end(data, end)
    values: list[tuple[int, Buffer]] = []
    for tag, start, stop in fields:
        values.append((tag, _cut_features(data[start:stop]) if tag == _FINALIZED_FEATURES else data[start:stop]))
    return b"".join((data[at:tags_at], write_tags(values), data[end:]))


@parsing
def transaction_version(body: Buffer, version: int) -> int:
    """Return the brokers' `transaction.version`, the highest that all of them use, of a response; 0 if it does not say.

    Raises ProtocolError.
    """
    data = memoryview(body)
    (error_code,) = INT16.unpack_from(data)
    if version < _FIRST_FLEXIBLE or error_code == _UNSUPPORTED_VERSION:
        return 0
    count, at = read_count(data, 2, True)
    for _ in range(count):
        at = skip_tags(data, at + _RANGE.size)
    fields, _ = read_tags(data, at + INT32.size)
    for tag, start, stop in fields:
        if tag == _FINALIZED_FEATURES:
            value = data[start:stop]
            highest = {name: _LEVELS.unpack_from(value, levels_at)[0] for name, levels_at in _levels(value)}
            return int(highest.get(_TRANSACTION_VERSION, 0))
    return 0


def _levels(value: memoryview) -> Iterator[tuple[str, int]]:
    """Yield the name of each finalized feature, and the position of its levels."""
    count, at = read_count(value, 0, True)
    for _ in range(count):
        name, at = read_string(value, at, True)
        yield name, at
        at = skip_tags(value, at + _LEVELS.size)
    check_end(value, at)


def _cut_features(value: memoryview) -> bytes:
    cut = bytearray(value)
    for name, at in _levels(value):
        if name == _TRANSACTION_VERSION:
            highest, lowest = _LEVELS.unpack_from(value, at)
            _LEVELS.pack_into(cut, at, min(highest, 1), min(lowest, 1))
    return bytes(cut)


def client_software(body: Buffer, version: int) -> str:
    """Return name and version of the client's software as a request gives them (KIP-511), separated by a blank.

    Empty before v3, and for a body that is not such a request, because the broker will reject it.
    """
    if version < _FIRST_FLEXIBLE:
        return ""
    try:
        return _client_software(body)
    except ProtocolError:
        return ""


@parsing
def _client_software(body: Buffer) -> str:
    name, at = read_string(body, 0, True)
    version, _ = read_string(body, at, True)
    return f"{name} {version}".strip()


def unsupported_api_versions_response(correlation_id: int) -> bytes:
    """Header and body for a request version above ours: v0, error UNSUPPORTED_VERSION, our range for ApiVersions."""
    api = API_TABLE[API_VERSIONS]
    entry = _RANGE.pack(API_VERSIONS, api.lowest_version, api.highest_version)
    return INT32.pack(correlation_id) + INT16.pack(_UNSUPPORTED_VERSION) + INT32.pack(1) + entry
