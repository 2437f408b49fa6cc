"""The journal on real brokers: its topic, appends by many processes, reads, trims."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from proxy.coordinator.interface_journal import Appended, JournalRecord, JournalUnavailable, PositionTrimmed
from proxy.demo.stack import Stack
from proxy.journal.errors import JournalUnfit
from proxy.journal.journal import KafkaJournal
from tests.support.journal import journal_of, new_topic_name, read_all

PROCESSES = 10


async def test_the_topic_is_created_as_the_journal_needs_it(stack: Stack) -> None:
    topic = new_topic_name()
    async with journal_of(stack, topic, opened=False) as journal:
        with pytest.raises(JournalUnfit, match="is missing"):
            await journal.open(create_missing=False)
        await journal.open()
        identity = journal.identity
        assert journal.cluster_id
    async with journal_of(stack, topic) as again:
        assert again.identity == identity
    admin = _admin(stack)
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    configs = {name: entry.value for name, entry in described.result(30).items()}
    assert configs["cleanup.policy"] == "delete"
    assert (configs["retention.ms"], configs["retention.bytes"]) == ("-1", "-1")
    assert configs["message.timestamp.type"] == "LogAppendTime"
    assert configs["unclean.leader.election.enable"] == "false"
    assert configs["min.insync.replicas"] == "2"


async def test_a_topic_that_can_lose_records_is_rejected(stack: Stack) -> None:
    topic, admin = new_topic_name(), _admin(stack)
    (created,) = admin.create_topics([NewTopic(topic, 3, 3)]).values()
    created.result(30)
    with pytest.raises(JournalUnfit, match="needs 5: one for each shard"):
        async with journal_of(stack, topic, partitions=5):
            raise AssertionError("opened")
    with pytest.raises(JournalUnfit) as refused:
        async with journal_of(stack, topic):
            raise AssertionError("opened")
    text = str(refused.value)
    _, _, remedy = text.partition("--add-config ")
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, _, value in (part.partition("=") for part in remedy.split(","))
    ]
    assert "message.timestamp.type" in {entry.name for entry in entries}
    (altered,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)]
    ).values()
    altered.result(30)
    async with journal_of(stack, topic) as journal:
        assert (await journal.append(0, b"first")).position == 0


async def test_too_few_brokers_may_still_come_and_the_settings_for_fewer_are_named(stack: Stack) -> None:
    with pytest.raises(JournalUnavailable, match=r"start more brokers, or set journal\.replication_factor"):
        async with journal_of(stack, new_topic_name(), replication_factor=4):
            raise AssertionError("opened")


async def test_a_topic_that_is_created_again_is_another_journal(stack: Stack) -> None:
    topic, admin = new_topic_name(), _admin(stack)
    async with journal_of(stack, topic, timeout_ms=3_000) as journal:
        identity = journal.identity
        await journal.append(0, b"value")
        (deleted,) = admin.delete_topics([topic]).values()
        deleted.result(30)
        async with journal_of(stack, topic) as other:
            assert other.identity != identity
            with pytest.raises(JournalUnavailable):
                await journal.append(0, b"value of the old journal")
            assert await other.end(0) == 0


async def test_positions_of_many_processes_have_no_gaps(stack: Stack) -> None:
    topic, partitions, values = new_topic_name(), (0, 2), 60
    appended: dict[tuple[int, bytes], Appended] = {}

    async def write(process: int, journal: KafkaJournal, partition: int) -> list[Appended]:
        """Append values, sixteen at once; return their places in the order of the calls."""
        places: list[Appended] = []
        for first in range(0, values, 16):
            named = [b"%d-%d-%d" % (process, partition, number) for number in range(first, min(first + 16, values))]
            found = await asyncio.gather(*(journal.append(partition, value) for value in named))
            appended.update(zip(((partition, value) for value in named), found, strict=True))
            places += found
        return places

    async with journal_of(stack, topic) as reader:
        writers = [journal_of(stack, topic, rack=f"rack-{'abc'[number % 3]}") for number in range(PROCESSES)]
        journals = [await writer.__aenter__() for writer in writers]
        try:
            orders = await asyncio.gather(
                *(
                    write(process, journal, partition)
                    for process, journal in enumerate(journals)
                    for partition in partitions
                )
            )
        finally:
            for writer in writers:
                await writer.__aexit__(None, None, None)
        for order in orders:
            assert [place.position for place in order] == sorted({place.position for place in order})
        for partition in partitions:
            records = await read_all(reader, partition, 4_096)
            assert [record.position for record in records] == list(range(PROCESSES * values))
            times_ms = [record.time_ms for record in records]
            assert times_ms == sorted(times_ms)
            assert {record.value: Appended(record.position, record.time_ms) for record in records} == {
                value: place for (of, value), place in appended.items() if of == partition
            }
        assert await read_all(reader, 1) == []


async def test_reads_at_and_beyond_both_ends(stack: Stack) -> None:
    async with journal_of(stack, new_topic_name()) as journal:
        assert (await journal.start(1), await journal.end(1)) == (0, 0)
        assert list(await journal.read(1, 0, 1_000)) == []
        large = b"x" * 100_000
        places = [await journal.append(1, value) for value in (b"", large, b"last")]
        records = [JournalRecord(*place, value) for place, value in zip(places, (b"", large, b"last"), strict=True)]
        assert list(await journal.read(1, 0, 2**30)) == records
        assert list(await journal.read(1, 1, 1)) == records[1:2]
        assert list(await journal.read(1, 3, 1_000)) == []
        assert list(await journal.read(1, 99, 1_000)) == []
        assert await journal.trim(1, 2) == 2
        assert (await journal.start(1), await journal.end(1)) == (2, 3)
        with pytest.raises(PositionTrimmed) as trimmed:
            await journal.read(1, 1, 1_000)
        assert trimmed.value.start == 2
        assert list(await journal.read(1, 2, 1_000)) == records[2:]
        with pytest.raises(JournalUnavailable):
            await journal.trim(1, 4)
        with pytest.raises(ValueError, match="no partition 3"):
            await journal.append(3, b"")


async def test_a_record_that_the_topic_does_not_take_is_not_appended(stack: Stack) -> None:
    topic, admin = new_topic_name(), _admin(stack)
    async with journal_of(stack, topic) as journal:
        entry = ConfigEntry("max.message.bytes", "65536", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(30)
        rejected = None
        for _ in range(100):  # until every broker knows of the config
            try:
                await journal.append(0, bytes(100_000))
            except JournalUnavailable as error:
                rejected = error
                break
        assert rejected is not None
        assert not rejected.appended
        assert "raise max.message.bytes" in str(rejected)
        await journal.append(0, b"fits")


def _admin(stack: Stack) -> AdminClient:
    return AdminClient({"bootstrap.servers": stack.direct_bootstrap})
