"""A broker in the same process that answers any request without error and repeats the names in it."""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from proxy.wire.cold import _element_types, encode, read_request
from proxy.wire.cold_lengths import layout
from proxy.wire.fetch import parse_fetch_request
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response
from proxy.wire.header import parse_request_header, response_header
from proxy.wire.log_dirs import LogDir, read_partitions, rewrite_log_dirs
from proxy.wire.primitives import write_count
from tests.support.loop_steps import Steps
from tests.unit.connection_double import FakeTransport

_FETCH, _DESCRIBE_CONFIGS, _DESCRIBE_LOG_DIRS = 1, 32, 35
_FIRST_FLEXIBLE_DESCRIBE_CONFIGS = 4
_ALL_PARTITIONS = 50_000
"""Partitions of a broker."""
ALL_OPERATIONS = 0x7FFFFFF
CHUNK_BYTES = 65_536
"""Maximum bytes that uvloop reads from a socket at a time."""
_QUORUM = ("nodes", "current_voters", "observers", "listeners")
_OWN_ARRAYS = ("brokers", "configs", "node_endpoints", "acquired_records", *_QUORUM)
"""Arrays of a response that are not about the elements of the request."""
_CONFIG: dict[str, Any] = {
    "value": "604800000",
    "read_only": False,
    "config_source": 5,
    "is_sensitive": False,
    "synonyms": (),
    "config_type": 5,
    "documentation": None,
}
"""A config of DescribeConfigs v4."""
_ZEROS: dict[str, Any] = {
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "bool": False,
    "string": "",
    "uuid": None,
    "bytes": b"",
    "records": b"",
    "error_code": ErrorCode(0),
    "timedelta_i32": i32Timedelta.parse(timedelta()),
}


class EchoBroker(FakeTransport):
    """Transport to the broker."""

    def __init__(self, protocol: asyncio.Protocol, steps: Steps) -> None:
        super().__init__(protocol)
        self._received = bytearray()
        self._steps = steps

    def writelines(self, list_of_data: Any) -> None:
        began = time.thread_time()
        joined = b"".join(list_of_data)
        self._steps.not_counted_s += time.thread_time() - began
        self.write(joined)

    def write(self, data: Any) -> None:
        began = time.thread_time()
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                break
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            answered = answer(frame)
            for start in range(0, len(answered), CHUNK_BYTES):
                asyncio.get_running_loop().call_soon(self.protocol.data_received, answered[start : start + CHUNK_BYTES])
        self._steps.not_counted_s += time.thread_time() - began


def answer(frame: bytes) -> bytes:
    """Return the frame of a response, with its size."""
    header = parse_request_header(memoryview(frame))
    key, version = header.api_key, header.api_version
    asked_body = frame[header.body_offset :]
    if key == _FETCH:
        body = _fetched(asked_body, version)
    elif key == _DESCRIBE_LOG_DIRS:
        body = _log_dirs(asked_body, version)
    elif key == _DESCRIBE_CONFIGS and version >= _FIRST_FLEXIBLE_DESCRIBE_CONFIGS:
        body = _configs_described(asked_body, version)
    else:
        body = encode(echo(read_request(key, version, asked_body), load_response_schema(key, version)))
    whole = response_header(key, version, header.correlation_id) + body
    return struct.pack(">i", len(whole)) + whole


def _fetched(body: bytes, version: int) -> bytes:
    """Build a Fetch response without records."""
    asked = parse_fetch_request(body, version)
    topics = [
        TopicFetched(topic.topic, [PartitionFetched(one.index, 0, 0, 0, 0, (), 0) for one in topic.partitions])
        for topic in asked.topics
    ]
    return b"".join(build_fetch_response(version, 0, topics))


def _log_dirs(body: bytes, version: int) -> bytes:
    """Build an answer with a directory."""
    asked = read_partitions(body, version)
    if asked is None:
        asked = {f"{one:06}": list(range(10)) for one in range(_ALL_PARTITIONS // 10)} | {"d": [0]}
    sizes = {topic: [(index, 1) for index in partitions] for topic, partitions in asked.items()}
    none = bytes(4 + 2) + b"\1\0"
    return b"".join(rewrite_log_dirs(none, version, (), LogDir(0, "/disk", sizes)))


def _configs_described(body: bytes, version: int) -> bytes:
    """Build an answer; the configs of a topic are encoded once, as kio takes more than a millisecond for them."""
    resources = read_request(_DESCRIBE_CONFIGS, version, body).resources
    results = [_config_result(str(one.resource_name), one.resource_type, version) for one in resources]
    return b"".join([bytes(4), write_count(len(results), True), *results, b"\0"])


def _config_result(name: str, resource_type: int, version: int) -> bytes:
    """Return an element of the answer: no error, an empty message, type, name, configs, no tagged fields."""
    encoded = name.encode()
    return b"".join(
        [
            bytes(2) + b"\1",
            bytes([resource_type]),
            write_count(len(encoded), True),
            encoded,
            _encoded_configs(name[-3:], version),
        ]
    )


@lru_cache(maxsize=1_000)
def _encoded_configs(own: str, version: int) -> bytes:
    """Return the end of such an element, after its name."""
    answer_type = load_response_schema(_DESCRIBE_CONFIGS, version)
    result_type = _element_types(answer_type)["results"]
    asked = SimpleNamespace(resource_name=own)
    configs = configs_of(asked, _element_types(result_type)["configs"])
    named = {"error_code": ErrorCode(0), "error_message": "", "resource_type": 2, "resource_name": ""}
    return encode(result_type(**named, configs=configs))[len(b"\0\0\1" + b"\2" + write_count(0, True)) :]


def echo(asked: Any, answer_type: Any) -> Any:
    """Build an answer that names the requested things."""
    values: dict[str, Any] = {}
    elements, found = _element_types(answer_type), layout(answer_type)
    shapes = {one.name: one for one in (*found.fields, *found.tagged.values())}
    for field in fields(answer_type):
        shape = shapes[field.name]
        if shape.entity is not None and not shape.is_array:
            values[field.name] = None if shape.nullable else echo(asked, shape.entity)
        elif field.name == "configs" and asked_is_resource(asked):
            values[field.name] = configs_of(asked, elements[field.name])
        elif field.name in elements:
            values[field.name] = tuple(echo(one, elements[field.name]) for one in _array_of(asked, field.name))
        elif is_dataclass(asked) and hasattr(asked, field.name):
            values[field.name] = getattr(asked, field.name)
        elif not is_dataclass(asked) and field.name in ("name", "partition_index", "key"):
            values[field.name] = asked
        elif field.name == "topic_authorized_operations":
            values[field.name] = ALL_OPERATIONS
        elif field.default is MISSING and field.default_factory is MISSING:
            values[field.name] = _ZEROS.get(str(field.metadata.get("kafka_type")), ())
    return answer_type(**values)


def asked_is_resource(asked: Any) -> bool:
    """Return whether it is a resource of DescribeConfigs."""
    return hasattr(asked, "configuration_keys")


def configs_of(resource: Any, config_type: Any) -> tuple[Any, ...]:
    """Return as many configs as brokers have of a topic; those of a thousand topics differ."""
    own = config_type(**{**_CONFIG, "name": "own", "value": str(resource.resource_name)[-3:]})
    return (*_configs(config_type), own)


@lru_cache
def _configs(config_type: Any) -> tuple[Any, ...]:
    return tuple(config_type(**{**_CONFIG, "name": f"config.number.{number}"}) for number in range(36))


def _array_of(asked: Any, name: str) -> Any:
    """Return the elements of the request that correspond to a response array."""
    for one in (name, "topics", "resources", "topic_names", "partitions", "partition_indexes", "coordinator_keys"):
        if is_dataclass(asked) and isinstance(getattr(asked, one, None), tuple) and name not in _OWN_ARRAYS:
            return getattr(asked, one)
    return ()
