"""Unmodified clients authenticate through the proxy as at a broker, with every mechanism; wrong credentials fail."""

from __future__ import annotations

import asyncio
import ssl
import uuid
import warnings
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from proxy.demo.security import ADMIN, MECHANISMS, unsecured_token
from proxy.demo.stack import Stack
from tests.support.confluent import produce, read, read_partitions
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS

with warnings.catch_warnings():
    # Its import raises warnings that are not ours to fix.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

RECORDS = 20


@pytest.fixture(scope="package")
def topics(secure_stack: Stack) -> dict[str, str]:
    """Create a topic of each kind through the proxy."""
    client = AdminClient(
        {"bootstrap.servers": secure_stack.bootstrap("rack-a"), **secure_stack.security.client_settings(ADMIN)}
    )
    made = {}
    for kind in (CLASSIC, DISKLESS):
        name = f"clients-{kind}-{uuid.uuid4().hex[:6]}"
        configs = {"diskless.enable": "true"} if kind == DISKLESS else {}
        topic = NewTopic(name, 4, replication_factor=2, config=configs)
        client.create_topics([topic], request_timeout=30)[name].result(40)
        made[kind] = name
    return made


def dotless(settings: dict[str, Any]) -> dict[str, Any]:
    """Convert settings to the form that the helpers of tests/support take."""
    return {name.replace(".", "_"): value for name, value in settings.items()}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(secure: Stack, topics: dict[str, str], mechanism: str) -> None:
    settings = dotless(secure.security.client_settings(ADMIN, mechanism))
    for topic in topics.values():
        before = len(read(secure.bootstrap("rack-b"), topic, **settings))
        produce(secure.bootstrap("rack-a"), topic, samples(RECORDS, mechanism), **settings)
        assert len(read(secure.bootstrap("rack-b"), topic, **settings)) == before + RECORDS


def test_a_wrong_password_gets_the_brokers_error(secure: Stack, topics: dict[str, str]) -> None:
    settings = secure.security.client_settings(ADMIN) | {"sasl.password": "not-the-password-of-anyone"}
    client = AdminClient({"bootstrap.servers": secure.bootstrap("rack-a"), **settings})
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": secure.bootstrap("rack-a"),
            **settings,
            "error_cb": lambda error: errors.append(error.str()),
        }
    )
    with pytest.raises(KafkaException):
        client.list_topics(timeout=5)
    producer.poll(1)
    assert any("Authentication failed" in error for error in errors), errors
    assert "not-the-password-of-anyone" not in secure.log_tail("proxy-rack-a", 10_000)


class Tokens(AbstractTokenProvider):
    async def token(self) -> str:
        return unsecured_token(ADMIN)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
async def test_aiokafka(secure: Stack, topics: dict[str, str], mechanism: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": secure.bootstrap("rack-a"),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(secure.security.ca_file)),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ADMIN,
        "sasl_plain_password": secure.security.users[ADMIN],
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    for topic in topics.values():
        async with AIOKafkaProducer(enable_idempotence=True, **settings) as producer:
            sent = [await producer.send_and_wait(topic, f"{n}".encode(), partition=1) for n in range(RECORDS)]
        async with AIOKafkaConsumer(**settings) as consumer:
            partition = AiokafkaPartition(topic, 1)
            consumer.assign([partition])
            consumer.seek(partition, sent[0].offset)
            values = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(RECORDS)]
        assert values == [f"{n}".encode() for n in range(RECORDS)]


async def test_aiokafka_with_a_wrong_password(secure: Stack) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=secure.bootstrap("rack-a"),
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=str(secure.security.ca_file)),
        sasl_mechanism="PLAIN",
        sasl_plain_username=ADMIN,
        sasl_plain_password="wrong",
    )
    with pytest.raises(AiokafkaError):
        await producer.start()
    await producer.stop()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256"])
def test_kafka_python(secure: Stack, topics: dict[str, str], mechanism: str) -> None:
    settings = {
        "bootstrap_servers": secure.bootstrap("rack-a"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secure.security.ca_file),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ADMIN,
        "sasl_plain_password": secure.security.users[ADMIN],
    }
    for topic in topics.values():
        producer = KafkaProducer(**settings)
        sent = [producer.send(topic, f"{n}".encode(), partition=2).get(30) for n in range(RECORDS)]
        producer.close()
        consumer = KafkaConsumer(**settings)
        partition = TopicPartition(topic, 2)
        consumer.assign([partition])
        consumer.seek(partition, sent[0].offset)
        values: list[bytes] = []
        while len(values) < RECORDS:
            values += [record.value for records in consumer.poll(1000).values() for record in records]
        consumer.close()
        assert values == [f"{n}".encode() for n in range(RECORDS)]


def test_java_tools(secure: Stack, topics: dict[str, str]) -> None:
    bootstrap = ("--bootstrap-server", secure.bootstrap("rack-b"))
    bearer = str(secure.security.java_properties(ADMIN, "OAUTHBEARER"))
    done = secure.java(
        "org.apache.kafka.tools.TopicCommand", *bootstrap, "--command-config", bearer, "--describe", timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert all(f"Topic: {topic}" in done.stdout for topic in topics.values())
    topic = topics[DISKLESS]
    scram = str(secure.security.java_properties(ADMIN, "SCRAM-SHA-256"))
    arguments = ("--topic", topic, "--command-config", scram)
    done = secure.java(
        "org.apache.kafka.tools.ConsoleProducer", *bootstrap, *arguments, stdin="from java\n", timeout=90
    )
    assert done.returncode == 0, done.stderr
    settings = dotless(secure.security.client_settings(ADMIN))
    partitions = read_partitions(secure.bootstrap("rack-a"), topic, 4, **settings)
    assert b"from java" in [record.value for partition in partitions for record in partition]
