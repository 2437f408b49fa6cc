"""Messages of rarely called APIs, as kio's entities.

kio knows every API and version by name, at a cost that does not matter here. An entity is a frozen dataclass; handlers
change it with `dataclasses.replace`. A message that kio can't read (an error code or tagged field newer than kio)
raises ProtocolError. A caller that can do so then forwards the message unchanged.
"""

from __future__ import annotations

import io
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import lru_cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from proxy.wire.cold_lengths import check_lengths
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import Buffer


def read_request(api_key: int, api_version: int, body: Buffer, *, most: int | None = None) -> Any:
    """Return the entity of a request body; `most` is the maximum number of its elements, by default MAX_ELEMENTS.

    Raises ProtocolError.
    """
    return _read(load_request_schema, api_key, api_version, body, most)


def read_response(api_key: int, api_version: int, body: Buffer) -> Any:
    """Return the entity of a response body. Raises ProtocolError."""
    return _read(load_response_schema, api_key, api_version, body)


def read_entity(entity_type: Any, data: Buffer) -> Any:
    """Return an element of an array of a response. Raises ProtocolError."""
    check_lengths(entity_type, data, of_client=False)
    return _decode(entity_type, data, entity_type.__name__)


def encode(entity: Any) -> bytes:
    """Return the body that an entity stands for."""
    stream = io.BytesIO()
    entity_writer(type(entity))(stream, entity)
    return stream.getvalue()


def at_version(entity: Any, api_version: int, *, response: bool) -> Any:
    """Return the same message in another version: fields that it lacks are dropped, fields that it adds get
    defaults."""
    load = load_response_schema if response else load_request_schema
    return _reshape(entity, load(entity.__api_key__, api_version))


def nested(entity_type: Any, field: str) -> Any:
    """Return the entity type of the elements of an array field."""
    return _element_types(entity_type)[field]


def milliseconds(value: int) -> Any:
    """Kafka's int32 milliseconds as kio has them."""
    return i32Timedelta.parse(timedelta(milliseconds=value))


def _read(load: Any, api_key: int, api_version: int, body: Buffer, most: int | None = None) -> Any:
    try:
        entity_type: Any = load(api_key, api_version)
    except KioIndexError as error:
        raise ProtocolError(f"version {api_version} of API key {api_key} is not known") from error
    check_lengths(entity_type, body, of_client=load is load_request_schema, most=most)
    return _decode(entity_type, body, f"API key {api_key} v{api_version}")


def _decode(entity_type: Any, body: Buffer, what: str) -> Any:
    try:
        entity, _ = entity_reader(entity_type)(body, 0)
    except Exception as error:
        # kio's readers raise whatever fits (KeyError for a tag, ValueError for a code, its own for short data).
        raise ProtocolError(f"{what} can't be read: {error!r}") from error
    _check_nulls(entity)
    return entity


def _check_nulls(entity: Any) -> None:
    """Raise ProtocolError for null in an array that must not be null: kio's readers let it through."""
    entity_type: Any = type(entity)
    for name, nullable in _arrays(entity_type).items():
        value = getattr(entity, name)
        if value is None and not nullable:
            raise ProtocolError(f"the array {name} must not be null")
        for element in value or ():
            if is_dataclass(element):
                _check_nulls(element)


@lru_cache(maxsize=256)
def _arrays(entity_type: Any) -> dict[str, bool]:
    """Return the array fields, and whether each may be null."""
    found = {}
    for name, hint in get_type_hints(entity_type).items():
        parts = (hint, *get_args(hint))
        if any(get_origin(part) is tuple for part in parts):
            found[name] = NoneType in parts
    return found


@lru_cache(maxsize=256)
def _element_types(entity_type: Any) -> dict[str, Any]:
    """Return the entity types in array fields, by field."""
    found = {}
    for name, hint in get_type_hints(entity_type).items():
        for inner in (hint, *get_args(hint)):
            for part in (inner, *get_args(inner)):
                if is_dataclass(part):
                    found[name] = part
    return found


def _reshape(entity: Any, target: Any) -> Any:
    elements = _element_types(target)
    values = {}
    for field in fields(target):
        if hasattr(entity, field.name):
            value = getattr(entity, field.name)
            if field.name in elements and value is not None:
                value = tuple(_reshape(element, elements[field.name]) for element in value)
            values[field.name] = value
        elif field.default is MISSING and field.default_factory is MISSING:
            values[field.name] = _ZEROS.get(str(field.metadata.get("kafka_type")), ())
    return target(**values)


_ZEROS: dict[str, Any] = {
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "bool": False,
    "string": None,
    "uuid": None,
    "timedelta_i32": i32Timedelta.parse(timedelta()),
}
