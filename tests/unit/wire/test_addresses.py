"""No response of any API and version contains a broker's own address, according to the schemas.

The proxy rewrites or hides every field with a host, port or address, or the field is excused here with a reason. The
test searches the handlers' answers for the addresses that went in.
"""

import asyncio
import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from proxy.assembly.handlers import build_handlers
from proxy.client.request import Request
from proxy.protocol.apis import API_TABLE, Treatment
from proxy.wire.endpoints import rewrite_node_endpoints
from proxy.wire.fetch_stream import FetchEndpointStream
from tests.unit.client_double import ClientDouble
from tests.unit.parts import parts_of, settings_of
from tests.unit.wire.kafka_python import response_schemas
from tests.unit.wire.test_endpoints import fetch_by_walk
from tests.unit.wire.trees import encode, response_type, schema_of, trees

_WORDS = ("host", "port", "address", "listener", "endpoint", "url")
_EXCUSED = {
    "client_host": "of a group's member, as its broker sees it: the proxy",
    "resources.acls.host": "of clients, which an ACL is about",
    "filter_results.matching_acls.host": "of clients, which an ACL is about",
    "user_endpoint.host": "of a Kafka Streams application, which its own `application.server` names",
    "user_endpoint.port": "of a Kafka Streams application, which its own `application.server` names",
    "endpoint_type": "whether brokers or controllers are listed",
    "endpoint_information_epoch": "of Kafka Streams applications' endpoints",
}
_PRODUCE, _FETCH = 0, 1
SECRET, SECRET_PORT = "secret-host.of.brokers", 0x5EC7
PROXY = ("proxy", 4242)


def _fields(entity, path=""):
    for field in schema_of(entity).fields:
        name = f"{path}{field.name}"
        if field.kind == "struct":
            yield from _fields(field.entity, f"{name}.")
        elif field.kind in ("string", "int32", "uint16", "int16", "int8", "bytes"):
            yield name, field


def _is_address(name):
    last = name.rpartition(".")[2]
    words = last.split("_")
    return any(word.rstrip("s") in _WORDS for word in words)


def _is_excused(name):
    return any(name == excuse or name.endswith((f".{excuse}", f"_{excuse}")) for excuse in _EXCUSED)


_VERSIONS = {
    0: range(10, 14),
    1: range(16, 19),
    3: range(14),
    10: range(7),
    55: [2],
    60: range(3),
    78: [1, 2],
    79: [1, 2],
}
SERVED = [(key, version) for key, versions in _VERSIONS.items() for version in versions]
"""API keys and versions of answers with addresses that clients get."""


@functools.cache
def _of_kio():
    """Return keys and versions of all answers with addresses. It imports all schemas of kio, which takes seconds."""
    return [
        (key, version)
        for key, name in sorted(api_key_map.items())
        for version in sorted(schema_name_map[name])
        if any(_is_address(field) and not _is_excused(field) for field, _ in _fields(response_type(key, version)))
    ]


def test_addresses_are_found_where_they_are_known_to_be():
    found = {key for key, _ in _of_kio()}
    assert {key for key in found if API_TABLE[key].treatment is Treatment.HIDE} == {52, 53, 54, 59, 82}
    assert [(key, version) for key, version in _of_kio() if API_TABLE[key].treatment is not Treatment.HIDE] == SERVED


@pytest.mark.parametrize("key", _VERSIONS)
def test_answers_with_addresses_do_not_stream_through(key):
    assert API_TABLE[key].treatment in (Treatment.REWRITE, Treatment.INTERCEPT)


def _of_kafka_python(fields, path=""):
    for field in fields:
        name = f"{path}{field['name']}"
        if "fields" in field:
            yield from _of_kafka_python(field["fields"], f"{name}.")
        else:
            yield "".join(f"_{c.lower()}" if c.isupper() else c for c in name).replace("._", ".").lstrip("_")


def test_kafka_pythons_schemas_have_addresses_in_the_same_apis():
    """Also in versions that kio no longer knows."""
    found = {}
    for key, schema in response_schemas():
        names = [name for name in _of_kafka_python(schema["fields"]) if _is_address(name) and not _is_excused(name)]
        if names:
            found[key] = names
    assert len(found) >= 6
    assert set(found) <= {key for key, _ in _of_kio()}
    assert {key for key in found if API_TABLE[key].treatment is Treatment.PASS} == set()


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_every_version_that_is_served_has_a_schema_that_was_looked_at(api):
    if api.treatment is Treatment.HIDE:
        return
    known = set(schema_name_map[api_key_map[api.key]])
    by_kafka_python = {key: schema["validVersions"] for key, schema in response_schemas()}
    low, _, high = by_kafka_python.get(api.key, "1-0").partition("-")
    known |= set(range(int(low), int(high or low) + 1))
    served = set(range(api.lowest_version, api.highest_version + 1))
    # Fetch and Produce before KIP-896 carry no addresses, and kio and kafka-python have forgotten some others.
    assert {version for version in served - known if version > 3} == set()


def _with_secrets(entity, tree):
    """Every address in the message is the brokers' own; every node is one that has an address."""
    for field in schema_of(entity).fields:
        value = tree.get(field.name)
        if field.kind == "struct" and value is not None:
            for element in value if field.is_array else [value]:
                _with_secrets(field.entity, element)
        elif field.name == "host" and field.name in tree:
            tree["host"] = SECRET
        elif field.name == "port" and field.name in tree:
            tree["port"] = SECRET_PORT
    return tree


class _Fleet:
    """Every broker but each third has a listener."""

    def listener(self, node_id, *_):
        return PROXY if node_id % 3 else None


@functools.cache
def _handlers():
    """Return the handlers of a proxy that has not connected to anything."""

    async def build():
        parts = parts_of(settings_of(enable_under_replicated_topic_creation=False))
        parts.routing.addresses._fleet = _Fleet()
        return build_handlers(parts)

    return asyncio.run(build())


def _answers(key, version, body):
    """Return the body as clients get it, in each way that an answer of the API can take."""
    if key == _PRODUCE:
        yield rewrite_node_endpoints(key, body, version, lambda node_id: PROXY)
        return
    if key == _FETCH:
        yield fetch_by_walk(body, version, lambda node_id: PROXY)
        stream = FetchEndpointStream(version, lambda node_id: PROXY)
        yield stream.feed(memoryview(body))
        stream.finish()
        return
    client = ClientDouble()
    assert _handlers().handle[key](client, Request(key, version, 1, "app", memoryview(b""), memoryview(b""))) is None
    yield [client.rewritten(body)]


@pytest.mark.parametrize(("key", "version"), SERVED)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_no_address_of_a_broker_gets_through(key, version, data):
    entity = response_type(key, version)
    tree = _with_secrets(entity, data.draw(trees(entity, tags="known")))
    for buffers in _answers(key, version, encode(entity, tree)):
        body = b"".join(bytes(buffer) for buffer in buffers)
        assert SECRET.encode() not in body
