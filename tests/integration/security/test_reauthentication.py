"""KIP-368: sessions end after `connections.max.reauth.ms`, and continue for clients that authenticate again.

The proxies' own connections use the mechanism with the short lifetime too, so all tests of this folder depend on it.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.index import load_request_schema

from proxy.demo.ports import HOST
from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack
from proxy.protocol.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.security.sasl import Scram
from proxy.wire.cold import milliseconds, nested
from proxy.wire.sasl import build_authenticate, build_handshake, parse_authenticate_response, parse_handshake_response
from tests.batches import make_batch
from tests.support.readiness import readiness
from tests.support.secure_wire import REAUTHENTICATION_MS, tls_connection
from tests.support.topics import CLASSIC, DISKLESS
from tests.support.wire import Wire

MECHANISM = "SCRAM-SHA-512"
LIFETIMES = 2.5
"""Duration of the clients' traffic in session lifetimes."""
PRODUCE = 0


@pytest.fixture(scope="package")
def topics(secure_stack: Stack) -> dict[str, str]:
    settings = secure_stack.security.client_settings(ADMIN)
    client = AdminClient({"bootstrap.servers": secure_stack.bootstrap("rack-a"), **settings})
    made = {}
    for kind in (CLASSIC, DISKLESS):
        made[kind] = name = f"sessions-{kind}-{uuid.uuid4().hex[:6]}"
        configs = {"diskless.enable": "true"} if kind == DISKLESS else {}
        topic = NewTopic(name, 1, replica_assignment=[[1, 2]], config=configs)
        client.create_topics([topic], request_timeout=30)[name].result(40)
    return made


def traffic(stack: Stack, topic: str) -> tuple[int, list[str]]:
    """Produce and consume over several lifetimes; return the number of records, and the complaints."""
    settings = {"bootstrap.servers": stack.bootstrap("rack-a"), **stack.security.client_settings(ADMIN, MECHANISM)}
    complaints: list[str] = []

    def complain(error: KafkaError) -> None:
        complaints.append(error.str())

    acknowledged: list[int] = []

    def acknowledge(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            complain(error)
        else:
            acknowledged.append(message.offset())

    producer = Producer({**settings, "linger.ms": 0, "error_cb": complain, "enable.idempotence": True})
    consumer = Consumer({**settings, "group.id": "unused", "error_cb": complain, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumed: list[int] = []
    ends = time.monotonic() + LIFETIMES * REAUTHENTICATION_MS / 1000
    while time.monotonic() < ends:
        producer.produce(topic, b"again and again", partition=0, on_delivery=acknowledge)
        producer.poll(0.05)
        consumed += [message.offset() for message in consumer.consume(100, 0.05)]
    assert not producer.flush(30)
    deadline = time.monotonic() + 30
    while len(consumed) < len(acknowledged) and time.monotonic() < deadline:
        consumed += [message.offset() for message in consumer.consume(100, 0.5)]
    consumer.close()
    assert consumed == acknowledged == list(range(len(acknowledged)))
    return len(acknowledged), complaints


def test_traffic_continues_for_clients_that_authenticate_again(secure: Stack, topics: dict[str, str]) -> None:
    with ThreadPoolExecutor() as pool:
        for records, complaints in pool.map(lambda topic: traffic(secure, topic), topics.values()):
            assert records > 20
            assert complaints == []
    # The proxies' own sessions have ended more than once meanwhile.
    for rack in secure.proxies:
        assert readiness(secure.admin_url(rack))[0] == 200


def authenticate(stack: Stack, wire: Wire, password: str | None = None, version: int = 1) -> tuple[int, int]:
    """Authenticate, for the first time or again; return error code and session lifetime in milliseconds."""
    handshake = parse_handshake_response(wire.ask_bytes(SASL_HANDSHAKE, 1, build_handshake(MECHANISM)))
    if handshake.error_code:
        return handshake.error_code, 0
    scram = Scram("sha512", ADMIN, password or stack.security.users[ADMIN])
    challenge, answer = b"", None
    while (token := scram.respond(challenge)) is not None:
        body = wire.ask_bytes(SASL_AUTHENTICATE, version, build_authenticate(token))
        answer = parse_authenticate_response(body, version)
        if answer.error_code:
            break
        challenge = answer.auth_bytes
    assert answer is not None
    return answer.error_code, answer.session_lifetime_ms


def connection(stack: Stack, *, direct: bool) -> Wire:
    port = stack.ports.broker(1) if direct else stack.ports.broker_port_start(0) + 1
    return Wire(tls_connection(stack, HOST, port))


def produce(wire: Wire, topic: str) -> int:
    schema: Any = load_request_schema(PRODUCE, 9)
    topic_type = nested(schema, "topic_data")
    partition = nested(topic_type, "partition_data")(
        index=0, records=bytes(make_batch(timestamp_ms=int(time.time() * 1000)))
    )
    answer = wire.ask(
        PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=milliseconds(20_000),
        topic_data=(topic_type(name=topic, partition_data=(partition,)),),
    )
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("kind", [CLASSIC, DISKLESS])
@pytest.mark.parametrize("version", [0, 1])
def test_a_client_that_does_not_authenticate_again_is_disconnected(
    secure: Stack, topics: dict[str, str], kind: str, version: int
) -> None:
    """Version 0 reports no lifetime: only the broker knows it, and the proxy asks it for rights from time to time."""
    with connection(secure, direct=False) as wire:
        error_code, lifetime_ms = authenticate(secure, wire, version=version)
        assert error_code == 0
        assert lifetime_ms == (REAUTHENTICATION_MS if version else 0)
        with pytest.raises(ConnectionError):
            keep_producing(wire, topics[kind])


def keep_producing(wire: Wire, topic: str) -> None:
    """Produce for as long as the connection lasts, with an upper limit."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert produce(wire, topic) == 0
        time.sleep(0.1)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "proxied"])
def test_authentication_in_mid_connection(secure: Stack, topics: dict[str, str], direct: bool) -> None:
    topic = topics[CLASSIC if direct else DISKLESS]
    with connection(secure, direct=direct) as wire:
        assert authenticate(secure, wire)[0] == 0
        assert produce(wire, topic) == 0
        # Too soon after the last one: brokers reject it, and the session continues.
        assert authenticate(secure, wire)[0] == 0
        assert authenticate(secure, wire)[0] == 34
        assert produce(wire, topic) == 0
        time.sleep(1.1)
        assert authenticate(secure, wire, password="wrong")[0] == 58
        assert wire.is_closed()
