"""ACLs: an action that the brokers deny is denied through the proxy too, on topics of either kind.

The same user sends requests to the broker itself for a classic topic, and to the proxy for a classic and a diskless
topic with the same ACLs. The error codes must be equal, API by API, while rights change on open connections.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic
from kio.index import load_request_schema

from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack
from proxy.wire.cold import milliseconds, nested
from tests.batches import make_batch
from tests.support.acls import CLUSTER, GROUP, Acls
from tests.support.questions import filled
from tests.support.secure_wire import direct_wire, proxied_wire
from tests.support.topics import CLASSIC, DISKLESS
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.unit.wire.trees import decode, encode, request_type, response_type

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, FIND_COORDINATOR = 0, 1, 2, 3, 8, 10
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 19, 20, 21, 22, 23
DESCRIBE_CONFIGS, CREATE_PARTITIONS, DESCRIBE_TOPIC_PARTITIONS = 32, 37, 75
DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS = 35, 61
UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_LOAD_IN_PROGRESS, TOPIC_AUTHORIZATION_FAILED = 3, 14, 29
COORDINATOR_IS_ELSEWHERE = (14, 15, 16)
"""Coordinator load in progress, not available, not coordinator."""
FIRST_ID_VERSION = 13
"""First version of Fetch with topic IDs."""
SPREAD_SECONDS = 30
"""Seconds until ACLs have reached the brokers and cached rights have expired."""


def admin(stack: Stack, *, direct: bool = False) -> AdminClient:
    bootstrap = stack.direct_bootstrap if direct else stack.bootstrap("rack-a")
    return AdminClient({"bootstrap.servers": bootstrap, **stack.security.client_settings(ADMIN)})


def make_topic(stack: Stack, name: str, kind: str) -> None:
    """Create a topic with one partition, led by broker 1."""
    configs = {"diskless.enable": "true"} if kind == DISKLESS else {}
    topic = NewTopic(name, 1, replica_assignment=[[1, 2]], config=configs)
    client = admin(stack)
    client.create_topics([topic], request_timeout=30)[name].result(40)


class Asker:
    """Sends every request that is authorized by topic, for a topic whose name and ID it knows."""

    def __init__(self, wire: Wire, name: str, topic_id: uuid.UUID, group: str) -> None:
        self._wire = wire
        self._name = name
        self._topic_id = topic_id
        self._group = group

    def answers(self) -> dict[str, Any]:
        """Return error codes by request, and the client's rights according to Metadata."""
        return {
            "Produce v9": self.produce(9, name=self._name),
            "Produce v13": self.produce(13, topic_id=self._topic_id),
            "InitProducerId": self._init_producer_id(),
            "Fetch v12": self.fetch(12, topic=self._name),
            "Fetch v13": self.fetch(13, topic_id=self._topic_id),
            "ListOffsets": self._list_offsets(),
            "OffsetForLeaderEpoch": self._offset_for_leader_epoch(),
            "Metadata by name": self._metadata(name=self._name, topic_id=None),
            "Metadata by ID": self._metadata(name=None, topic_id=self._topic_id),
            "Metadata of all": self._metadata_of_all(),
            "DescribeTopicPartitions": self._describe_topic_partitions(),
            "DescribeConfigs": self._describe_configs(),
            "FindCoordinator": self._find_coordinator(),
            "OffsetCommit": self._offset_commit(),
            "DeleteRecords": self._delete_records(),
            "DescribeProducers": self._describe_producers(),
            "DescribeLogDirs": self._describe_log_dirs(),
        }

    def refused(self) -> dict[str, Any]:
        """Return error codes of requests that would change the topic for good, when they are not allowed."""
        return {
            "CreateTopics": self._create_topics(),
            "CreatePartitions": self._create_partitions(),
            "DeleteTopics by name": self.delete(name=self._name, topic_id=None),
            "DeleteTopics by ID": self.delete(name=None, topic_id=self._topic_id),
        }

    def produce(self, version: int, **topic: Any) -> int:
        now_ms = int(time.time() * 1000)  # retention would delete older ones
        topic_type = nested(load_request_schema(PRODUCE, version), "topic_data")
        partition = nested(topic_type, "partition_data")(index=0, records=bytes(make_batch(timestamp_ms=now_ms)))
        answer = self._wire.ask(
            PRODUCE,
            version,
            transactional_id=None,
            acks=-1,
            timeout=milliseconds(20_000),
            topic_data=(topic_type(**topic, partition_data=(partition,)),),
        )
        return int(answer.responses[0].partition_responses[0].error_code)

    def fetch(self, version: int, **topic: Any) -> int:
        schema: Any = load_request_schema(FETCH, version)
        topic_type = nested(schema, "topics")
        partition = nested(topic_type, "partitions")(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=0,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1024,
        )
        answer = self._wire.ask(
            FETCH,
            version,
            max_wait=milliseconds(0),
            min_bytes=0,
            max_bytes=1024,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=(topic_type(**topic, partitions=(partition,)),),
            forgotten_topics_data=(),
            rack_id="",
        )
        return int(answer.responses[0].partitions[0].error_code)

    def delete(self, **state: Any) -> int:
        state_type = nested(load_request_schema(DELETE_TOPICS, 6), "topics")
        answer = self._wire.ask(DELETE_TOPICS, 6, topics=(state_type(**state),), timeout=milliseconds(20_000))
        return int(answer.responses[0].error_code)

    def _list_offsets(self) -> int:
        topic_type = nested(load_request_schema(LIST_OFFSETS, 7), "topics")
        partition = nested(topic_type, "partitions")(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topics = (topic_type(name=self._name, partitions=(partition,)),)
        answer = self._wire.ask(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)
        return int(answer.topics[0].partitions[0].error_code)

    def _offset_for_leader_epoch(self) -> int:
        topic_type = nested(load_request_schema(OFFSET_FOR_LEADER_EPOCH, 4), "topics")
        partition = nested(topic_type, "partitions")(partition=0, current_leader_epoch=-1, leader_epoch=0)
        topics = (topic_type(topic=self._name, partitions=(partition,)),)
        answer = self._wire.ask(OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=topics)
        return int(answer.topics[0].partitions[0].error_code)

    def _metadata(self, **named: Any) -> tuple[int, bool, int, int]:
        topic_type = nested(load_request_schema(METADATA, 12), "topics")
        answer = self._wire.ask(
            METADATA,
            12,
            topics=(topic_type(**named),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        (topic,) = answer.topics
        return (int(topic.error_code), topic.name is None, len(topic.partitions), topic.topic_authorized_operations)

    def _metadata_of_all(self) -> bool:
        answer = self._wire.ask(
            METADATA, 12, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        return self._name in {topic.name for topic in answer.topics}

    def _describe_topic_partitions(self) -> tuple[int, int, bool]:
        topic_type = nested(load_request_schema(DESCRIBE_TOPIC_PARTITIONS, 0), "topics")
        answer = self._wire.ask(
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=(topic_type(name=self._name),),
            response_partition_limit=10,
            cursor=None,
        )
        (topic,) = answer.topics
        return (int(topic.error_code), len(topic.partitions), topic.topic_id is None)

    def _describe_configs(self) -> int:
        resource = nested(load_request_schema(DESCRIBE_CONFIGS, 4), "resources")
        answer = self._wire.ask(
            DESCRIBE_CONFIGS,
            4,
            resources=(resource(resource_type=2, resource_name=self._name, configuration_keys=None),),
            include_synonyms=False,
            include_documentation=False,
        )
        return int(answer.results[0].error_code)

    def _init_producer_id(self) -> int:
        answer = self._wire.ask(
            INIT_PRODUCER_ID,
            4,
            transactional_id=None,
            transaction_timeout=milliseconds(1000),
            producer_id=-1,
            producer_epoch=-1,
        )
        return int(answer.error_code)

    def _find_coordinator(self) -> int:
        answer = self._wire.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=(self._group,))
        return int(answer.coordinators[0].error_code)

    def _offset_commit(self) -> int:
        topic_type = nested(load_request_schema(OFFSET_COMMIT, 8), "topics")
        partition = nested(topic_type, "partitions")(
            partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=None
        )
        answer = self._wire.ask(
            OFFSET_COMMIT,
            8,
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=(topic_type(name=self._name, partitions=(partition,)),),
        )
        error_code = int(answer.topics[0].partitions[0].error_code)
        # A client with the right to commit gets the group's coordinator, which may not be settled yet.
        return 0 if error_code in COORDINATOR_IS_ELSEWHERE else error_code

    def _delete_records(self) -> int:
        topic_type = nested(load_request_schema(DELETE_RECORDS, 2), "topics")
        partition = nested(topic_type, "partitions")(partition_index=0, offset=0)
        topics = (topic_type(name=self._name, partitions=(partition,)),)
        answer = self._wire.ask(DELETE_RECORDS, 2, topics=topics, timeout=milliseconds(20_000))
        return int(answer.topics[0].partitions[0].error_code)

    def _describe_producers(self) -> int:
        topic_type = nested(load_request_schema(DESCRIBE_PRODUCERS, 0), "topics")
        answer = self._wire.ask(DESCRIBE_PRODUCERS, 0, topics=(topic_type(name=self._name, partition_indexes=(0,)),))
        return int(answer.topics[0].partitions[0].error_code)

    def _describe_log_dirs(self) -> tuple[int, bool]:
        topic_type = nested(load_request_schema(DESCRIBE_LOG_DIRS, 4), "topics")
        answer = self._wire.ask(DESCRIBE_LOG_DIRS, 4, topics=(topic_type(topic=self._name, partitions=(0,)),))
        return (int(answer.error_code), bool(answer.results))

    def _create_topics(self) -> int:
        return create(self._wire, self._name, CLASSIC)

    def _create_partitions(self) -> int:
        topic_type = nested(load_request_schema(CREATE_PARTITIONS, 3), "topics")
        answer = self._wire.ask(
            CREATE_PARTITIONS,
            3,
            topics=(topic_type(name=self._name, count=2, assignments=None),),
            timeout=milliseconds(20_000),
            validate_only=True,
        )
        return int(answer.results[0].error_code)


def create(wire: Wire, name: str, kind: str) -> int:
    """Return the error code of creating a topic."""
    topic_type = nested(load_request_schema(CREATE_TOPICS, 7), "topics")
    config_type = nested(topic_type, "configs")
    configs = (config_type(name="diskless.enable", value="true"),) if kind == DISKLESS else ()
    topic = topic_type(name=name, num_partitions=1, replication_factor=2, assignments=(), configs=configs)
    answer = wire.ask(CREATE_TOPICS, 7, topics=(topic,), timeout=milliseconds(20_000), validate_only=False)
    return int(answer.topics[0].error_code)


def topic_id(wire: Wire, name: str) -> uuid.UUID:
    """Return the topic's ID, as soon as the broker knows it."""
    topic_type = nested(load_request_schema(METADATA, 12), "topics")

    def found() -> uuid.UUID | None:
        topics = (topic_type(name=name, topic_id=None),)
        answer = wire.ask(
            METADATA, 12, topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        known: uuid.UUID | None = answer.topics[0].topic_id
        return known

    known = wait_for(found, "the broker does not know the topic")
    assert isinstance(known, uuid.UUID)
    return known


@pytest.fixture(scope="package")
def acls(secure_stack: Stack) -> Acls:
    return Acls(secure_stack)


@pytest.fixture
def alice(secure: Stack, acls: Acls) -> Iterator[str]:
    """Remove all of the user's rights before and after the test."""
    acls.revoke("alice")
    yield "alice"
    acls.revoke("alice")


class Three:
    """The broker itself for a classic topic, and the proxy for a classic and a diskless one."""

    def __init__(self, stack: Stack, direct: Wire, proxied: Wire, names: dict[str, str]) -> None:
        with direct_wire(stack, ADMIN) as wire:
            ids = {kind: topic_id(wire, name) for kind, name in names.items()}
        group = f"group-{uuid.uuid4().hex[:6]}"
        self.group = group
        self._direct = Asker(direct, names[CLASSIC], ids[CLASSIC], group)
        self._proxied = {kind: Asker(proxied, name, ids[kind], group) for kind, name in names.items()}

    def wait_until(self, **known: int) -> dict[str, Any]:
        """Wait until the broker gives the expected answer, and return it."""
        deadline = time.monotonic() + SPREAD_SECONDS
        while True:
            answers = self._direct.answers()
            settled = COORDINATOR_LOAD_IN_PROGRESS not in answers.values()
            if settled and all(answers[name.replace("_", " ")] == code for name, code in known.items()):
                return answers
            assert time.monotonic() < deadline, answers

    def agree(self, expected: dict[str, Any], *, on_change: bool = False) -> None:
        """Require the same answer from the proxy for both kinds, as soon as its cached rights have expired."""
        deadline = time.monotonic() + SPREAD_SECONDS
        for kind, asker in self._proxied.items():
            while True:
                answers = asker.refused() if on_change else asker.answers()
                if answers == expected:
                    break
                different = {
                    name: (answers[name], expected[name]) for name in expected if answers[name] != expected[name]
                }
                assert time.monotonic() < deadline, f"{kind}: proxied and direct are {different}"
                time.sleep(0.2)

    def direct_refusals(self) -> dict[str, Any]:
        return self._direct.refused()


@pytest.mark.parametrize("kind", [CLASSIC, DISKLESS])
def test_no_version_of_fetch_gives_records_without_the_right(secure: Stack, acls: Acls, alice: str, kind: str) -> None:
    """Fetch at the listener of each broker: near ones, and those of other racks, whose partitions are read near."""
    name = f"unread-{kind}-{uuid.uuid4().hex[:6]}"
    make_topic(secure, name, kind)
    with proxied_wire(secure, ADMIN) as wire:
        asker = Asker(wire, name, topic_id(wire, name), "group")
        wait_for(lambda: asker.produce(9, name=name) == 0, "there is a record")
        wanted = topic_id(wire, name).bytes
    fetches = 0
    for right in (None, AclOperation.DESCRIBE, AclOperation.WRITE):
        if right is not None:
            acls.allow(alice, right, name)
        for node in secure.kafka.racks:
            with proxied_wire(secure, alice, node) as wire:
                for version in range(4, 19):
                    named = {"topic": name} if version < FIRST_ID_VERSION else {"topic_id": wanted}
                    partition = {"partition": 0, "current_leader_epoch": -1, "partition_max_bytes": 1 << 20}
                    topics = [{**named, "partitions": [partition]}]
                    entity = request_type(FETCH, version)
                    values = {"replica_id": -1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": topics}
                    body = wire.ask_bytes(FETCH, version, encode(entity, filled(entity, values)))
                    answer = decode(response_type(FETCH, version), bytes(body))
                    (one,) = (one for topic in answer["responses"] for one in topic["partitions"])
                    refused = (one["error_code"], one["records"] or b"")
                    assert refused == (TOPIC_AUTHORIZATION_FAILED, b""), (right, node, version)
                    fetches += 1
    assert fetches >= 72, "both kinds together: at least the 144 Fetches of the review"


def test_the_answers_are_the_brokers(secure: Stack, acls: Acls, alice: str) -> None:
    names = {kind: f"acls-{kind}-{uuid.uuid4().hex[:6]}" for kind in (CLASSIC, DISKLESS)}
    for kind, name in names.items():
        make_topic(secure, name, kind)
    with direct_wire(secure, alice) as direct, proxied_wire(secure, alice) as proxied:
        three = Three(secure, direct, proxied, names)

        def allow(operation: AclOperation) -> None:
            for name in names.values():
                acls.allow(alice, operation, name)

        denied = TOPIC_AUTHORIZATION_FAILED
        answers = three.wait_until(Produce_v9=denied, Fetch_v12=denied, ListOffsets=denied)
        three.agree(answers)
        three.agree(three.direct_refusals(), on_change=True)

        allow(AclOperation.DESCRIBE)
        answers = three.wait_until(Produce_v9=denied, Fetch_v12=denied, ListOffsets=0)
        three.agree(answers)
        three.agree(three.direct_refusals(), on_change=True)

        allow(AclOperation.READ)
        answers = three.wait_until(Produce_v9=denied, Fetch_v12=0)
        three.agree(answers)

        acls.allow(alice, AclOperation.READ, three.group, GROUP)
        answers = three.wait_until(FindCoordinator=0)
        three.agree(answers)

        allow(AclOperation.WRITE)
        answers = three.wait_until(Produce_v9=0, Fetch_v12=0)
        three.agree(answers)

        allow(AclOperation.DELETE)
        allow(AclOperation.DESCRIBE_CONFIGS)
        answers = three.wait_until(DeleteRecords=0, DescribeConfigs=0)
        three.agree(answers)

        # The controller decides on deletions and learns of ACLs by itself, so it is asked about a topic that never
        # existed.
        nothing = f"acls-nothing-{uuid.uuid4().hex[:6]}"
        acls.allow(alice, AclOperation.DELETE, nothing)
        controller = Asker(direct, nothing, uuid.UUID(int=0), "any")
        wait_for_deletion(controller, nothing, UNKNOWN_TOPIC_OR_PARTITION)

        acls.revoke(alice)
        answers = three.wait_until(Produce_v9=denied, Fetch_v12=denied, ListOffsets=denied)
        three.agree(answers)
        wait_for_deletion(controller, nothing, denied)
        three.agree(three.direct_refusals(), on_change=True)

        # A rejected deletion has not deleted a log.
        with proxied_wire(secure, ADMIN) as wire, direct_wire(secure, ADMIN) as own:
            asker = Asker(wire, names[DISKLESS], topic_id(own, names[DISKLESS]), "any")
            assert asker.fetch(12, topic=names[DISKLESS]) == 0
            assert asker.produce(9, name=names[DISKLESS]) == 0

        # An allowed one does.
        for name in names.values():
            acls.allow(alice, AclOperation.DELETE, name)
            acls.allow(alice, AclOperation.DESCRIBE, name)
        three.wait_until(ListOffsets=0)
        for kind, name in names.items():
            wait_for_deletion(Asker(proxied, name, uuid.UUID(int=0), "any"), name)
            assert name not in admin(secure, direct=True).list_topics(timeout=30).topics, kind


def wait_for_deletion(asker: Asker, name: str, expected: int = 0) -> None:
    """Repeat until the answer is the expected one: the controller may learn of an ACL later than a broker."""
    deadline = time.monotonic() + SPREAD_SECONDS
    while (error_code := asker.delete(name=name, topic_id=None)) != expected:
        assert error_code in (TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION)
        assert time.monotonic() < deadline, error_code
        time.sleep(0.2)


@pytest.mark.parametrize("kind", [CLASSIC, DISKLESS])
def test_creation_takes_the_right(secure: Stack, acls: Acls, alice: str, kind: str) -> None:
    name = f"made-{kind}-{uuid.uuid4().hex[:6]}"
    with direct_wire(secure, alice) as direct, proxied_wire(secure, alice) as proxied:
        refusal = create(direct, name, CLASSIC)
        assert refusal == TOPIC_AUTHORIZATION_FAILED
        assert create(proxied, name, kind) == refusal

        # The attempt did not take the name: another user can create it at once.
        with proxied_wire(secure, ADMIN) as allowed:
            assert create(allowed, name, DISKLESS) == 0
            # No secret leaks: alice gets the same answer as for any name.
            assert create(proxied, name, kind) == refusal

        acls.allow(alice, AclOperation.CREATE, "kafka-cluster", CLUSTER)
        deadline = time.monotonic() + SPREAD_SECONDS
        while (error_code := create(proxied, f"{name}-2", kind)) == TOPIC_AUTHORIZATION_FAILED:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert error_code == 0


def test_creation_on_demand_takes_the_right(secure: Stack, acls: Acls, alice: str) -> None:
    """Request Metadata: of a classic topic directly, and through the proxy of one whose name makes it diskless."""
    token = uuid.uuid4().hex[:6]
    names = (f"demand-{token}", f"diskless.demand-{token}")
    for name in names:
        acls.allow(alice, AclOperation.DESCRIBE, name)
    topic_type = nested(load_request_schema(METADATA, 12), "topics")

    def asked(wire: Wire, name: str, *, creates: bool) -> int:
        answer = wire.ask(
            METADATA,
            12,
            topics=(topic_type(name=name, topic_id=None),),
            allow_auto_topic_creation=creates,
            include_topic_authorized_operations=False,
        )
        return int(answer.topics[0].error_code)

    def wait_until(wire: Wire, name: str, expected: int, *, creates: bool) -> None:
        deadline = time.monotonic() + SPREAD_SECONDS
        while (error_code := asked(wire, name, creates=creates)) != expected:
            assert time.monotonic() < deadline, (name, error_code)
            time.sleep(0.1)

    with direct_wire(secure, alice) as direct, proxied_wire(secure, alice) as proxied:
        for wire, name in zip((direct, proxied), names, strict=True):
            wait_until(wire, name, UNKNOWN_TOPIC_OR_PARTITION, creates=False)
            assert asked(wire, name, creates=True) == TOPIC_AUTHORIZATION_FAILED
            assert asked(wire, name, creates=False) == UNKNOWN_TOPIC_OR_PARTITION
        acls.allow(alice, AclOperation.CREATE, "kafka-cluster", CLUSTER)
        for wire, name in zip((direct, proxied), names, strict=True):
            wait_until(wire, name, 0, creates=True)
