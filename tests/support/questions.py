"""Send single requests in any version, as trees of plain values by kio's schemas (`tests.unit.wire.trees`)."""

from __future__ import annotations

from typing import Any

from proxy.wire.header import response_header_length
from tests.support.raw import Raw, request
from tests.unit.wire.trees import decode, encode, request_type, response_type, schema_of

_ZEROS = {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "bool": False}


def filled(entity: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return a message with `values` in the fields that the version has, and every other field empty."""
    tree: dict[str, Any] = {}
    for field in schema_of(entity).fields:
        value = values.get(field.name)
        if field.kind == "struct" and value is not None:
            value = [filled(field.entity, each) for each in value] if field.is_array else filled(field.entity, value)
        if field.name in values:
            tree[field.name] = value
        elif field.tag is None:
            tree[field.name] = None if field.nullable else [] if field.is_array else _ZEROS.get(field.kind, 0)
    return tree


def ask_bytes(address: str, api_key: int, version: int, body: bytes, client_id: str | None = "raw") -> bytes:
    """Return the body of the answer. Raises ConnectionError if there is no answer."""
    with Raw(address) as raw:
        return ask_on(raw, api_key, version, body, client_id)


def ask_on(raw: Raw, api_key: int, version: int, body: bytes, client_id: str | None = "raw") -> bytes:
    """Send on an existing connection; otherwise like `ask_bytes`."""
    raw.send(request(api_key, version, body, client_id=client_id))
    frame = raw.answer()
    if frame is None:
        raise ConnectionError(f"no answer to API key {api_key} v{version}")
    return frame[response_header_length(api_key, version, frame) :]


def ask(address: str | Raw, api_key: int, version: int, client_id: str | None = "raw", **values: Any) -> dict[str, Any]:
    """Return the answer to a request with these fields, as a tree."""
    body = encode(entity := request_type(api_key, version), filled(entity, values))
    if isinstance(address, Raw):
        answer = ask_on(address, api_key, version, body, client_id)
    else:
        answer = ask_bytes(address, api_key, version, body, client_id)
    tree: dict[str, Any] = decode(response_type(api_key, version), answer)
    return tree
