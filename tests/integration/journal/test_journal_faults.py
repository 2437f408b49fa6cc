"""The journal while its leaders move and die: what is acknowledged stays, and what is rejected is not there."""

from __future__ import annotations

import asyncio

from confluent_kafka.admin import AdminClient, NewTopic

from proxy.config import Journal
from proxy.demo.stack import Stack
from proxy.journal.topic import wanted_configs
from tests.support.journal import Ledger, journal_of, new_topic_name
from tests.support.waiting import wait_for

PARTITIONS = 3


async def test_no_acknowledged_record_is_lost_while_leaders_move_and_die(stack: Stack) -> None:
    topic, ledger, done = new_topic_name(), Ledger(), asyncio.Event()

    async def progress() -> None:
        """Wait until each partition has taken some more records."""
        before = [len(ledger.appended[partition]) for partition in range(PARTITIONS)]

        def done_some_more() -> bool:
            return all(len(ledger.appended[one]) >= before[one] + 20 for one in range(PARTITIONS))

        await asyncio.to_thread(wait_for, done_some_more, "no progress")

    async with (
        journal_of(stack, topic, timeout_ms=8_000) as first,
        journal_of(stack, topic, rack="rack-b", timeout_ms=8_000) as second,
    ):
        async with asyncio.TaskGroup() as writers:
            for number in range(4):
                for partition in range(PARTITIONS):
                    journal = (first, second)[number % 2]
                    writers.create_task(ledger.write(f"writer-{number}", journal, partition, done))
            try:
                await progress()
                await asyncio.to_thread(stack.stop_broker, 1)  # which moves its leaders away first
                await progress()
                await asyncio.to_thread(stack.start_broker, 1)
                await progress()
                stack.kill_broker(2)
                await progress()
                await asyncio.to_thread(stack.start_broker, 2)
                await progress()
            finally:
                done.set()
        for partition in range(PARTITIONS):
            await ledger.check(second, partition)


async def test_a_partition_below_min_isr_takes_nothing_and_others_go_on(stack: Stack) -> None:
    topic, ledger = new_topic_name(), Ledger()
    settings = {"replication_factor": 2, "min_insync_replicas": 2, "timeout_ms": 10_000}
    admin = AdminClient({"bootstrap.servers": stack.direct_bootstrap})
    configs = wanted_configs(Journal(**settings))
    new = NewTopic(topic, PARTITIONS, replica_assignment=[[1, 2], [2, 3], [3, 2]], config=configs)
    admin.create_topics([new])[topic].result(60)
    async with journal_of(stack, topic, **settings) as journal:
        for partition in range(PARTITIONS):
            assert await ledger.append(journal, partition, b"before")
        stack.kill_broker(1)
        for number in range(200):
            assert await ledger.append(journal, 1, b"while broker 1 is down %d" % number)
            await ledger.append(journal, 0, b"below min ISR %d" % number)
            if ledger.rejected[0]:
                break
        assert any("NOT_ENOUGH_REPLICAS (start the brokers that are down)" in reason for reason in ledger.reasons)
        assert await ledger.append(journal, 1, b"after a rejected one")
        assert await ledger.append(journal, 2, b"after a rejected one")
        await asyncio.to_thread(stack.start_broker, 1)
        number = 0
        while not await ledger.append(journal, 0, b"again %d" % number):
            number += 1
            assert number < 200
            await asyncio.sleep(0.1)  # the broker that was started has to catch up
        for partition in range(PARTITIONS):
            await ledger.check(journal, partition)
