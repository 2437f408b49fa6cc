"""Kill a proxy that creates, deletes, enlarges or configures a topic at every step: the others finish the operation.

No half-made topic stays, every name can be used again, and no record is ever in a placeholder topic's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from kio.index import load_request_schema

from proxy.demo.ports import HOST
from proxy.demo.stack import Stack
from proxy.wire.cold import encode, milliseconds, nested
from tests.batches import make_batch
from tests.support.topic_books import Books, exchange
from tests.support.topics import REPLICAS, admin
from tests.support.victims import Victim, victims

__all__ = ["victims"]
pytestmark = pytest.mark.timeout(240)

PRODUCE, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS = 0, 19, 20, 37, 44
_PRODUCE_VERSION = 9
_TOPIC, _SET = 2, 0
PARTITIONS, MORE_PARTITIONS = 2, 4
RACKS = ("rack-a", "rack-b", "rack-c")
TIMEOUT = milliseconds(20_000)


class Operation(NamedTuple):
    """A client's request."""

    label: str
    api_key: int
    api_version: int
    fields: Callable[[str], dict[str, Any]]
    """Fields of the request about the topic of that name."""
    is_on_a_topic: bool = True
    """True if the topic must exist before."""


def create(name: str) -> dict[str, Any]:
    topic: Any = nested(load_request_schema(CREATE_TOPICS, 7), "topics")
    config = nested(topic, "configs")(name="diskless.enable", value="true")
    made = topic(name=name, num_partitions=PARTITIONS, replication_factor=REPLICAS, assignments=(), configs=(config,))
    return {"topics": (made,), "timeout": TIMEOUT, "validate_only": False}


def delete(name: str) -> dict[str, Any]:
    topic: Any = nested(load_request_schema(DELETE_TOPICS, 6), "topics")
    return {"topics": (topic(name=name, topic_id=None),), "timeout": TIMEOUT}


def enlarge(name: str) -> dict[str, Any]:
    topic: Any = nested(load_request_schema(CREATE_PARTITIONS, 3), "topics")
    enlarged = topic(name=name, count=MORE_PARTITIONS, assignments=None)
    return {"topics": (enlarged,), "timeout": TIMEOUT, "validate_only": False}


def configure(name: str) -> dict[str, Any]:
    resource: Any = nested(load_request_schema(INCREMENTAL_ALTER_CONFIGS, 1), "resources")
    config: Any = nested(resource, "configs")
    configs = (
        config(name="retention.ms", config_operation=_SET, value="7654321"),
        config(name="min.insync.replicas", config_operation=_SET, value="1"),
    )
    changed = resource(resource_type=_TOPIC, resource_name=name, configs=configs)
    return {"resources": (changed,), "validate_only": False}


OPERATIONS = (
    Operation("create", CREATE_TOPICS, 7, create, is_on_a_topic=False),
    Operation("delete", DELETE_TOPICS, 6, delete),
    Operation("enlarge", CREATE_PARTITIONS, 3, enlarge),
    Operation("configure", INCREMENTAL_ALTER_CONFIGS, 1, configure),
)
STEPS = {
    "create": ["registry_reserve", "CreateTopics", "create_logs", "registry_activate"],
    "delete": ["DeleteTopics", "registry_begin_delete", "delete_logs", "registry_remove"],
    "enlarge": ["CreatePartitions", "create_logs", "registry_activate"],
    "configure": ["IncrementalAlterConfigs", "registry_configure"],
}
"""Number of writes of each operation; a script on several shards counts once per shard."""


@asynccontextmanager
async def constant_records(stack: Stack, names: Iterable[str]) -> AsyncIterator[None]:
    """Produce to all brokers' listeners of all proxies, and ignore the answers: into the placeholder's log, if
    possible."""
    schema: Any = load_request_schema(PRODUCE, _PRODUCE_VERSION)
    topic: Any = nested(schema, "topic_data")
    data = tuple(
        topic(name=name, partition_data=(nested(topic, "partition_data")(index=0, records=bytes(make_batch())),))
        for name in names
    )
    body = encode(schema(transactional_id=None, acks=1, timeout=milliseconds(1_000), topic_data=data))

    async def send(address: str) -> None:
        while True:
            try:
                await exchange(address, PRODUCE, _PRODUCE_VERSION, body)
            except (OSError, asyncio.IncompleteReadError):
                pass
            await asyncio.sleep(0.1)

    addresses = [
        f"{HOST}:{stack.ports.broker_port_start(index) + node}"
        for index in range(len(stack.proxies))
        for node in stack.kafka.brokers
    ]
    sending = [asyncio.create_task(send(address)) for address in addresses]
    try:
        yield
    finally:
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


def make_topics(stack: Stack, names: Iterable[str]) -> None:
    """Create the topics through the stack's proxies."""
    client = admin(stack)
    topics = [
        NewTopic(name, PARTITIONS, replication_factor=REPLICAS, config={"diskless.enable": "true"}) for name in names
    ]
    for future in client.create_topics(topics, request_timeout=40).values() if topics else ():
        future.result(60)


def use_again(stack: Stack, names: list[str]) -> None:
    """Recreate every name; the new topic is empty and accepts records."""
    client = admin(stack, "rack-b")
    known = client.list_topics(timeout=30).topics
    there = [name for name in names if name in known]
    for future in client.delete_topics(there, request_timeout=40).values() if there else ():
        future.result(60)
    make_topics(stack, names)
    offsets: dict[str, int | None] = {}
    producer = Producer({"bootstrap.servers": stack.bootstrap("rack-c")})
    for name in names:
        producer.produce(
            name,
            b"new",
            partition=0,
            on_delivery=lambda _, message: offsets.update({message.topic(): message.offset()}),
        )
    assert not producer.flush(60)
    assert offsets == dict.fromkeys(names, 0)


def assert_shadows_are_empty(stack: Stack, names: Iterable[str], partitions: int) -> None:
    """Ask the brokers themselves."""
    reader = Consumer({"bootstrap.servers": stack.direct_bootstrap, "group.id": "unused"})
    try:
        for name in names:
            for partition in range(partitions):
                found = reader.get_watermark_offsets(TopicPartition(name, partition), timeout=30)
                assert found == (0, 0), f"records of {name} are in its shadow's log"
    finally:
        reader.close()


async def carry_out(stack: Stack, operation: Operation, name: str, victim: Victim) -> Any:
    """Carry out the whole operation, or as much as the victim lives to see."""
    return await victim.ask(operation.api_key, operation.api_version, **operation.fields(name))


def merged_steps(written: list[str]) -> list[str]:
    """Return the steps without repetitions next to each other."""
    return [name for place, name in enumerate(written) if not place or written[place - 1] != name]


class Case(NamedTuple):
    """An operation that breaks off after some of its writes: the proxy dies, or a reply is lost."""

    operation: Operation
    writes: int
    loses_reply: bool
    name: str


async def test_an_operation_on_a_topic_ends_at_any_step(stack: Stack, victims: None) -> None:
    run = uuid.uuid4().hex[:6]
    async with Books.of(stack) as books, AsyncExitStack() as living:
        writes: dict[str, int] = {}
        whole = [f"{run}-{one.label}-whole" for one in OPERATIONS]
        await asyncio.to_thread(make_topics, stack, whole[1:])
        async with Victim(stack, "rack-a", None) as unharmed:
            for operation, name in zip(OPERATIONS, whole, strict=True):
                answer = await carry_out(stack, operation, name, unharmed)
                results = next(value for value in vars_of(answer) if isinstance(value, tuple))
                assert [one.error_code.value for one in results] == [0]
                assert merged_steps(unharmed.written) == STEPS[operation.label]
                writes[operation.label] = len(unharmed.written)
                unharmed.written.clear()
        cases = [
            Case(
                operation, count, loses_reply, f"{run}-{operation.label}-{count}-{'lost' if loses_reply else 'killed'}"
            )
            for operation in OPERATIONS
            for count in range(1, writes[operation.label] + 1)
            for loses_reply in (False, True)
        ]
        names = [*whole, *(case.name for case in cases)]
        await asyncio.to_thread(make_topics, stack, [case.name for case in cases if case.operation.is_on_a_topic])
        async with constant_records(stack, names):
            doomed = [
                await living.enter_async_context(
                    Victim(stack, RACKS[place % len(RACKS)], case.writes, loses_reply=case.loses_reply)
                )
                for place, case in enumerate(cases)
            ]
            await asyncio.gather(
                *(carry_out(stack, one.operation, one.name, victim) for one, victim in zip(cases, doomed, strict=True))
            )
            for case, victim in zip(cases, doomed, strict=True):
                if len(victim.written) < case.writes:  # its partitions share shards, so the operation was over earlier
                    assert merged_steps(victim.written) == STEPS[case.operation.label], case.name
                else:
                    assert victim.dead.is_set() != case.loses_reply, case.name
            await books.settled(names)
        live = await books.shadows(names)
        assert live, "nothing was finished"
        await asyncio.to_thread(assert_shadows_are_empty, stack, live, PARTITIONS)
        await asyncio.to_thread(use_again, stack, names)
        await books.settled(names)
        await asyncio.to_thread(assert_shadows_are_empty, stack, names, PARTITIONS)


def vars_of(answer: Any) -> list[Any]:
    """Return the fields of an answer."""
    return [getattr(answer, name) for name in answer.__dataclass_fields__]


async def test_creators_are_killed_for_real(stack: Stack) -> None:
    """Use SIGKILL: on a proxy while the controller creates the placeholder topic, and on one that waits for the
    fleet."""
    asked, waiting = names = [f"sigkill-{label}-{uuid.uuid4().hex[:6]}" for label in ("controller", "fleet")]

    async def ask(rack: str, name: str) -> None:
        schema: Any = load_request_schema(CREATE_TOPICS, 7)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await exchange(stack.bootstrap(rack), CREATE_TOPICS, 7, encode(schema(**create(name))))

    async with Books.of(stack) as books, asyncio.TaskGroup() as asking:

        async def reserved(name: str) -> None:
            async with asyncio.timeout(30):
                while name not in await books.entries():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

        async with constant_records(stack, names):
            stack.pause("proxy-rack-c")  # nobody's reservation is acknowledged while it is paused
            asking.create_task(ask("rack-b", asked))
            await reserved(asked)
            stack.pause("controller")
            stack.resume("proxy-rack-c")
            await asyncio.sleep(2)  # by now the controller was most likely asked; if it was not, the name is free again
            stack.kill_proxy("rack-b")
            stack.resume("controller")
            stack.pause("proxy-rack-c")
            asking.create_task(ask("rack-a", waiting))
            await reserved(waiting)
            stack.kill_proxy("rack-a")
            stack.resume("proxy-rack-c")
            await books.settled(names)
        await asyncio.to_thread(stack.heal)
        live = await books.shadows(names)
        assert waiting not in live, "nobody had asked the brokers for it"
        await asyncio.to_thread(assert_shadows_are_empty, stack, live, PARTITIONS)
        await asyncio.to_thread(use_again, stack, names)
