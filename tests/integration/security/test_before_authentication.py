"""Before authentication, a client gets no more from the proxy than from a broker."""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.index import load_request_schema

from proxy.demo.ports import HOST
from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack
from proxy.protocol.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.wire.cold import encode, milliseconds, nested
from proxy.wire.sasl import build_authenticate, build_handshake
from tests.batches import make_batch
from tests.support.secure_wire import tls_connection
from tests.support.wire import Wire

API_VERSIONS = 18


@pytest.fixture(scope="package")
def diskless(secure_stack: Stack) -> str:
    """Create a diskless topic, so that the proxy answers some requests itself."""
    settings = secure_stack.security.client_settings(ADMIN)
    client = AdminClient({"bootstrap.servers": secure_stack.bootstrap("rack-a"), **settings})
    name = f"before-{uuid.uuid4().hex[:6]}"
    topic = NewTopic(name, 1, replication_factor=2, config={"diskless.enable": "true"})
    client.create_topics([topic], request_timeout=30)[name].result(40)
    return name


def connection(stack: Stack, *, direct: bool) -> Wire:
    port = stack.ports.broker(1) if direct else stack.ports.broker_port_start(0) + 1
    return Wire(tls_connection(stack, HOST, port))


def metadata(topic: str) -> tuple[int, int, bytes]:
    return 3, 5, encode(load_request_schema(3, 5)(topics=None, allow_auto_topic_creation=False))


def produce(topic: str) -> tuple[int, int, bytes]:
    schema: Any = load_request_schema(0, 9)
    topic_type = nested(schema, "topic_data")
    partition = nested(topic_type, "partition_data")(
        index=0, records=bytes(make_batch(timestamp_ms=int(time.time() * 1000)))
    )
    return (
        0,
        9,
        encode(
            schema(
                transactional_id=None,
                acks=-1,
                timeout=milliseconds(1000),
                topic_data=(topic_type(name=topic, partition_data=(partition,)),),
            )
        ),
    )


def fetch_in_a_session(topic: str) -> tuple[int, int, bytes]:
    """Build a request that the proxy answers with FETCH_SESSION_ID_NOT_FOUND without contacting any server."""
    schema: Any = load_request_schema(1, 12)
    topic_type = nested(schema, "topics")
    partition = nested(topic_type, "partitions")(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1024,
    )
    return (
        1,
        12,
        encode(
            schema(
                max_wait=milliseconds(0),
                min_bytes=0,
                max_bytes=1024,
                isolation_level=0,
                session_id=5,
                session_epoch=3,
                topics=(topic_type(topic=topic, partitions=(partition,)),),
                forgotten_topics_data=(),
                rack_id="",
            )
        ),
    )


def create_with_a_bad_config(topic: str) -> tuple[int, int, bytes]:
    """Build a request that the proxy rejects with INVALID_CONFIG without contacting any server."""
    schema: Any = load_request_schema(19, 7)
    topic_type = nested(schema, "topics")
    config = nested(topic_type, "configs")(name="diskless.enable", value="perhaps")
    made = topic_type(name="x", num_partitions=1, replication_factor=1, assignments=(), configs=(config,))
    return 19, 7, encode(schema(topics=(made,), timeout=milliseconds(1000), validate_only=False))


@pytest.mark.parametrize("make", [metadata, produce, fetch_in_a_session, create_with_a_bad_config])
@pytest.mark.parametrize("stage", ["at once", "after ApiVersions", "after SaslHandshake", "after the first of two"])
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "proxied"])
def test_no_request_is_answered(
    secure: Stack, diskless: str, make: Callable[[str], tuple[int, int, bytes]], stage: str, direct: bool
) -> None:
    with connection(secure, direct=direct) as wire:
        under_way = stage.startswith("after the first") or stage == "after SaslHandshake"
        if stage == "after ApiVersions":
            wire.ask_bytes(API_VERSIONS, 0, b"")
        elif stage != "at once":
            wire.ask_bytes(SASL_HANDSHAKE, 1, build_handshake("SCRAM-SHA-256"))
        if stage == "after the first of two":
            wire.ask_bytes(SASL_AUTHENTICATE, 1, build_authenticate(b"n,,n=admin,r=0123456789"))
        if direct and under_way:
            # A broker sends ILLEGAL_SASL_STATE first.
            wire.ask_bytes(*make(diskless))
            assert wire.is_closed()
            return
        with pytest.raises(ConnectionError):
            wire.ask_bytes(*make(diskless))


def test_anyone_gets_api_versions(secure: Stack) -> None:
    with connection(secure, direct=False) as wire:
        offered = {
            key.api_key
            for key in wire.ask(API_VERSIONS, 3, client_software_name="x", client_software_version="1").api_keys
        }
        assert {SASL_HANDSHAKE, SASL_AUTHENTICATE} <= offered


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "proxied"])
def test_a_large_request_is_rejected_by_its_size(secure: Stack, direct: bool) -> None:
    with connection(secure, direct=direct) as wire:
        with suppress(ConnectionError, ssl.SSLEOFError):  # it may be rejected before all of it is sent
            wire.send(b"\0\x11\0\x01" + bytes(4) + b"\xff\xff" + bytes(524_289))
        assert wire.is_closed()
