"""Share groups (KIP-932) and diskless topics: a clear error for these, and the group's other topics continue."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaException, ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from proxy.demo.stack import Stack
from tests.support.confluent import produce
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, KINDS, admin, create_topic, new_topic
from tests.support.waiting import wait_for

METADATA, FIND_COORDINATOR, SHARE_GROUP_HEARTBEAT = 3, 10, 76
SHARE_FETCH, SHARE_ACKNOWLEDGE, DESCRIBE_OFFSETS, ALTER_OFFSETS = 78, 79, 90, 91
INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_ID = 17, 100
RACK = "rack-b"
MAX_WAIT_MS = 600
"""Wait of a fetch that finds nothing."""
CLOCKS_DIFFER_MS = 5
"""A timer of the event loop may end early by a part of its resolution."""
RECORDS = 6
TIMEOUT_SECONDS = 60


@pytest.fixture
def topics(stack: Stack) -> dict[str, str]:
    made = {kind: new_topic(stack, "shared", kind) for kind in KINDS}
    for name in made.values():
        produce(stack.bootstrap("rack-a"), name, samples(RECORDS, "shared", plain=True))
    return made


@pytest.fixture
def group(stack: Stack) -> str:
    """Create a share group that reads from the beginning."""
    name = f"share-{uuid.uuid4().hex[:8]}"
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[entry])
    client = admin(stack)
    client.incremental_alter_configs([resource])[resource].result(30)
    return name


def coordinator(stack: Stack, group: str) -> str:
    """Return the address of its coordinator, once there is one."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        asked = ask(stack.bootstrap(RACK), FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
        (found,) = asked["coordinators"]
        if not found["error_code"]:
            return f"{found['host']}:{found['port']}"
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def join(stack: Stack, group: str, member: str, names: list[str]) -> None:
    """Become a member, so that the group's state of the partitions is created."""
    epoch = 0
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        joined = ask(
            coordinator(stack, group),  # brokers may be balancing leaders
            SHARE_GROUP_HEARTBEAT,
            1,
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=names if epoch == 0 else None,
        )
        epoch = joined["member_epoch"] if not joined["error_code"] else 0
        if epoch and joined["assignment"] and len(joined["assignment"]["topic_partitions"]) == len(names):
            return
        assert time.monotonic() < deadline, joined
        time.sleep(0.2)


def partition(**more: Any) -> dict[str, Any]:
    return {"partition_index": 0, **more}


@pytest.mark.parametrize("version", [1, 2])
def test_a_session_with_both_kinds(stack: Stack, topics: dict[str, str], group: str, version: int) -> None:
    asked = [{"name": name, "topic_id": bytes(16)} for name in topics.values()]
    metadata = ask(stack.bootstrap(RACK), METADATA, 12, topics=asked)
    known = {topic["name"]: topic for topic in metadata["topics"]}
    ids = {kind: known[name]["topic_id"] for kind, name in topics.items()}
    leader = known[topics[CLASSIC]]["partitions"][0]["leader_id"]
    address = next(f"{one['host']}:{one['port']}" for one in metadata["brokers"] if one["node_id"] == leader)
    member = str(uuid.uuid4())
    join(stack, group, member, [topics[CLASSIC]])

    def fetch(epoch: int, *kinds: str) -> dict[str, Any]:
        """Return the answer, by kind."""
        answer = ask(
            raw,
            SHARE_FETCH,
            version,
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            max_wait=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=100,
            batch_size=100,
            topics=[{"topic_id": ids[kind], "partitions": [partition()]} for kind in kinds],
        )
        assert (answer["error_code"], answer["error_message"]) == (0, None)
        by_id = {topic["topic_id"]: topic["partitions"] for topic in answer["responses"]}
        return {kind: by_id[topic_id][0] for kind, topic_id in ids.items() if topic_id in by_id}

    with Raw(address) as raw:
        first = fetch(0, DISKLESS)
        assert first.keys() == {DISKLESS}
        assert first[DISKLESS]["error_code"] == UNKNOWN_TOPIC_ID
        assert "share groups can't read it" in first[DISKLESS]["error_message"]
        began = time.monotonic()
        assert fetch(1) == {}
        # The broker answers at once, and the client would repeat the request at once.
        assert time.monotonic() - began >= (MAX_WAIT_MS - CLOCKS_DIFFER_MS) / 1000
        both = fetch(2, CLASSIC, DISKLESS)
        assert both[DISKLESS]["error_code"] == UNKNOWN_TOPIC_ID
        epoch, acquired = 3, list(both.get(CLASSIC, {}).get("acquired_records", ()))
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while sum(one["last_offset"] + 1 - one["first_offset"] for one in acquired) < RECORDS:
            assert time.monotonic() < deadline, acquired
            acquired += fetch(epoch).get(CLASSIC, {}).get("acquired_records", ())
            epoch += 1
        accept = [
            {"first_offset": one["first_offset"], "last_offset": one["last_offset"], "acknowledge_types": [1]}
            for one in acquired
        ]
        acknowledged = ask(
            raw,
            SHARE_ACKNOWLEDGE,
            version,
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            topics=[
                {"topic_id": topic_id, "partitions": [partition(acknowledgement_batches=accept)]}
                for topic_id in ids.values()
            ],
        )
        assert acknowledged["error_code"] == 0
        errors = {topic["topic_id"]: topic["partitions"][0]["error_code"] for topic in acknowledged["responses"]}
        assert errors == {ids[CLASSIC]: 0, ids[DISKLESS]: INVALID_TOPIC_EXCEPTION}


def heartbeat(address: str | Raw, group: str, member: str, epoch: int, names: list[str] | None) -> dict[str, Any]:
    return ask(
        address,
        SHARE_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=names,
    )


def test_a_subscription_with_a_diskless_topic_is_rejected(stack: Stack, topics: dict[str, str], group: str) -> None:
    """It is also rejected if the topic is created after the member has joined."""
    member, later = str(uuid.uuid4()), f"later-{uuid.uuid4().hex[:8]}"
    with Raw(coordinator(stack, group)) as raw:
        beat = heartbeat(raw, group, member, 0, list(topics.values()))
        assert beat["error_code"] == INVALID_TOPIC_EXCEPTION
        assert f"Share groups can't read diskless topics: {topics[DISKLESS]}." in beat["error_message"]
        beat = heartbeat(raw, group, member, 0, [topics[CLASSIC], later])
        assert beat["error_code"] == 0, beat
        create_topic(stack, later, DISKLESS)

        def rejected() -> bool:
            answer = heartbeat(raw, group, member, beat["member_epoch"], None)
            return answer["error_code"] == INVALID_TOPIC_EXCEPTION and later in answer["error_message"]

        wait_for(rejected, "the heartbeat is rejected")
        assert heartbeat(raw, group, member, -1, None)["error_code"] == 0, "it can leave"


def test_a_share_consumer_reports_the_error(stack: Stack, topics: dict[str, str], group: str) -> None:
    errors: list[str] = []
    settings = {"bootstrap.servers": stack.bootstrap(RACK), "group.id": group}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe(list(topics.values()))
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not errors:
            assert time.monotonic() < deadline
            try:
                errors += [str(message.error()) for message in consumer.poll(1.0) if message.error()]
            except KafkaException as error:
                errors.append(str(error.args[0]))
    assert "Invalid topic" in errors[0], errors


def test_offsets_of_share_groups(stack: Stack, topics: dict[str, str], group: str) -> None:
    """Starting from an offset of a diskless topic is rejected; no client gets a lag of it."""
    asked = [{"topic_name": name, "partitions": [partition(start_offset=2)]} for name in topics.values()]
    deadline = time.monotonic() + 30
    while True:
        altered = ask(coordinator(stack, group), ALTER_OFFSETS, 0, group_id=group, topics=asked)
        if altered["error_code"] == 0 or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert altered["error_code"] == 0, altered
    errors = {topic["topic_name"]: topic["partitions"][0] for topic in altered["responses"]}
    assert errors[topics[CLASSIC]]["error_code"] == 0
    assert errors[topics[DISKLESS]]["error_code"] == INVALID_TOPIC_EXCEPTION
    assert "not on the brokers" in errors[topics[DISKLESS]]["error_message"]
    alone = ask(coordinator(stack, group), ALTER_OFFSETS, 0, group_id=group, topics=asked[1:])
    assert [one["topic_name"] for one in alone["responses"]] == [topics[DISKLESS]]
    for version in (0, 1):
        groups = [{"group_id": group, "topics": [{"topic_name": name, "partitions": [0]} for name in topics.values()]}]
        (described,) = ask(coordinator(stack, group), DESCRIBE_OFFSETS, version, groups=groups)["groups"]
        found = {topic["topic_name"]: topic["partitions"][0] for topic in described["topics"]}
        assert [found[topics[kind]]["start_offset"] for kind in (CLASSIC, DISKLESS)] == [2, -1]
        if version:
            assert [found[topics[kind]]["lag"] for kind in (CLASSIC, DISKLESS)] == [4, -1]
