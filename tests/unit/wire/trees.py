"""A second implementation of the protocol, for tests: messages as trees of plain values, by kio's schemas.

It is slow and general where `proxy.wire` is fast and hand-written. It is tolerant where kio is strict: error codes may
be unknown, and every structure may have unknown tagged fields. A structure is a dict by kio's field names; its unknown
tagged fields are under `UNKNOWN_TAGS`, and a known tagged field that was not sent has no key.
"""

import dataclasses
import struct
import types
import typing
from functools import cache

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

UNKNOWN_TAGS = "unknown tags"

_NUMBERS = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "error_code": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "timedelta_i32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "timedelta_i64": struct.Struct(">q"),
    "datetime_i64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}


class Field(typing.NamedTuple):
    name: str
    kind: str
    """A kafka_type of kio, or `struct`."""
    entity: typing.Any
    is_array: bool
    nullable: bool
    tag: int | None


class Schema(typing.NamedTuple):
    fields: tuple[Field, ...]
    flexible: bool


@cache
def schema_of(entity):
    fields = []
    for field in dataclasses.fields(entity):
        hint, nullable = _without_none(field.type)
        is_array = typing.get_origin(hint) is tuple
        if is_array:
            hint, _ = _without_none(typing.get_args(hint)[0])
        kind = "struct" if dataclasses.is_dataclass(hint) else field.metadata["kafka_type"]
        nullable = nullable and (is_array or kind in ("string", "bytes", "records", "struct"))
        fields.append(Field(field.name, kind, hint, is_array, nullable, field.metadata.get("tag")))
    return Schema(tuple(fields), entity.__flexible__)


def request_type(api_key, version):
    return load_request_schema(api_key, version)


def response_type(api_key, version):
    return load_response_schema(api_key, version)


def _without_none(hint):
    if isinstance(hint, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not types.NoneType), True
    return hint, False


# Writing.


def varint(value):
    encoded = b""
    while value > 127:
        encoded += bytes([value % 128 + 128])
        value //= 128
    return encoded + bytes([value])


def encode(entity, tree):
    fields, flexible = schema_of(entity)
    out = b"".join(_encode_field(field, tree[field.name], flexible) for field in fields if field.tag is None)
    if not flexible:
        return out
    tags = dict(tree.get(UNKNOWN_TAGS, {}))
    for field in fields:
        if field.tag is not None and field.name in tree:
            tags[field.tag] = _encode_field(field, tree[field.name], flexible)
    return out + varint(len(tags)) + b"".join(varint(tag) + varint(len(tags[tag])) + tags[tag] for tag in sorted(tags))


def _encode_field(field, value, flexible):
    if not field.is_array:
        return _encode_value(field, value, flexible)
    count = -1 if value is None else len(value)
    head = varint(count + 1) if flexible else struct.pack(">i", count)
    return head + b"".join(_encode_value(field, element, flexible) for element in value or ())


def _encode_value(field, value, flexible):
    if field.kind == "struct":
        if field.nullable and not field.is_array:
            return b"\xff" if value is None else b"\x01" + encode(field.entity, value)
        return encode(field.entity, value)
    if field.kind == "uuid":
        return value
    if field.kind in _NUMBERS:
        return _NUMBERS[field.kind].pack(value)
    raw = value.encode() if isinstance(value, str) else value
    length = -1 if raw is None else len(raw)
    if flexible:
        return varint(length + 1) + (raw or b"")
    return struct.pack(">h" if field.kind == "string" else ">i", length) + (raw or b"")


# Reading.


class _Reader:
    def __init__(self, data):
        self.data = bytes(data)
        self.at = 0

    def take(self, size):
        assert 0 <= size <= len(self.data) - self.at
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, packed):
        return packed.unpack(self.take(packed.size))[0]

    def varint(self):
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7


def decode(entity, data):
    """The tree of all of `data`."""
    reader = _Reader(data)
    tree = _decode(entity, reader)
    assert reader.at == len(reader.data), "bytes are left"
    return tree


def decode_joined(entity, buffers):
    return decode(entity, b"".join(buffers))


def _decode(entity, reader):
    fields, flexible = schema_of(entity)
    tree = {field.name: _decode_field(field, reader, flexible) for field in fields if field.tag is None}
    if flexible:
        by_tag = {field.tag: field for field in fields if field.tag is not None}
        unknown = {}
        for _ in range(reader.varint()):
            tag, value = reader.varint(), _Reader(reader.take(reader.varint()))
            if tag in by_tag:
                tree[by_tag[tag].name] = _decode_field(by_tag[tag], value, flexible)
                assert value.at == len(value.data), "a tagged field is not filled"
            else:
                unknown[tag] = value.data
        if unknown:
            tree[UNKNOWN_TAGS] = unknown
    return tree


def _decode_field(field, reader, flexible):
    if not field.is_array:
        return _decode_value(field, reader, flexible)
    count = reader.varint() - 1 if flexible else reader.number(_NUMBERS["int32"])
    return None if count < 0 else [_decode_value(field, reader, flexible) for _ in range(count)]


def _decode_value(field, reader, flexible):
    if field.kind == "struct":
        if field.nullable and not field.is_array and reader.take(1) == b"\xff":
            return None
        return _decode(field.entity, reader)
    if field.kind == "uuid":
        return reader.take(16)
    if field.kind in _NUMBERS:
        return reader.number(_NUMBERS[field.kind])
    if flexible:
        length = reader.varint() - 1
    else:
        length = reader.number(_NUMBERS["int16" if field.kind == "string" else "int32"])
    raw = None if length < 0 else reader.take(length)
    return raw.decode() if raw is not None and field.kind == "string" else raw


# Making up.

_VALUES = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "error_code": st.sampled_from([0, 0, 0, 6, 74, 3, -1, 9999]),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-1, 9) | st.integers(-(2**31), 2**31 - 1),
    "timedelta_i32": st.integers(0, 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "timedelta_i64": st.integers(0, 2**40),
    "datetime_i64": st.integers(0, 2**40),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=6) | st.sampled_from(["orders", "rack-a", "h" * 200]),
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=20) | st.integers(100, 40000).map(bytes),
    "uuid": st.binary(min_size=16, max_size=16),
}
_MOST_ELEMENTS = 4


@cache
def trees(entity, tags="any"):
    """Generate messages of the type, with `any` tagged fields, only those that are `known` to kio, or `none`."""
    fields, flexible = schema_of(entity)
    always = {field.name: _field_values(field, tags) for field in fields if field.tag is None}
    plain = st.fixed_dictionaries(always)
    if not flexible or tags == "none":
        return plain
    optional = {field.name: _field_values(field, tags) for field in fields if field.tag is not None}
    if tags == "any":
        numbers = st.integers(20, 26) | st.integers(100, 300)
        optional[UNKNOWN_TAGS] = st.dictionaries(numbers, st.binary(max_size=9), min_size=1, max_size=2)
    return plain | st.fixed_dictionaries(always, optional=optional)


def _field_values(field, tags):
    values = trees(field.entity, tags) if field.kind == "struct" else _VALUES[field.kind]
    if field.is_array:
        # Equal elements form columns; different elements break them.
        alike = st.tuples(values, st.integers(0, 7)).map(lambda pair: [pair[0]] * pair[1])
        values = st.lists(values, max_size=_MOST_ELEMENTS) | alike
    return st.none() | values if field.nullable else values
