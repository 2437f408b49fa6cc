"""The journal with the rights of docs/journal.md: each missing one is named, and no further one is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka.admin import AclOperation

from proxy.coordinator.interface_journal import JournalUnavailable
from proxy.demo.stack import Stack
from proxy.journal.errors import JournalUnfit
from tests.integration.security.test_completion_rights import USER, settings_of
from tests.support.acls import Acls
from tests.support.journal import journal_of, new_topic_name

TIMEOUT_SECONDS = 90.0
DENIED = "TOPIC_AUTHORIZATION_FAILED"


async def test_each_right_is_needed_and_enough(secure: Stack) -> None:
    topic, acls = new_topic_name(), Acls(secure)
    settings = {"replication_factor": 2, "min_insync_replicas": 2, "timeout_ms": 10_000}

    async def allowed(operation: AclOperation, call: Callable[[], Awaitable[object]]) -> None:
        """Grant a right, and repeat the call until the brokers know of it."""
        await asyncio.to_thread(acls.allow, USER, operation, topic)
        while True:
            try:
                await call()
                return
            except (JournalUnavailable, JournalUnfit):
                await asyncio.sleep(0.2)

    async with asyncio.timeout(TIMEOUT_SECONDS):
        async with journal_of(secure, topic, opened=False, proxy=settings_of(secure), **settings) as journal:

            async def opens_until(reason: str, *, create_missing: bool = True) -> None:
                """Open the journal, which has to fail for this reason; other errors are raised."""
                try:
                    await journal.open(create_missing=create_missing)
                except JournalUnfit as error:
                    if reason not in str(error):
                        raise

            with pytest.raises(JournalUnfit, match="may not see the topic"):
                await journal.open()
            await allowed(AclOperation.DESCRIBE, lambda: opens_until("is missing", create_missing=False))
            with pytest.raises(JournalUnfit, match="may not create the topic"):
                await journal.open()
            await allowed(AclOperation.CREATE, lambda: opens_until("may not read the configs"))
            await allowed(AclOperation.DESCRIBE_CONFIGS, journal.open)
            with pytest.raises(JournalUnavailable, match=DENIED):
                await journal.append(0, b"a")
            await allowed(AclOperation.WRITE, lambda: journal.append(0, b"a"))
            assert (await journal.append(0, b"b")).position == 1
            with pytest.raises(JournalUnavailable, match=DENIED):
                await journal.read(0, 0, 1_000)
            await allowed(AclOperation.READ, lambda: journal.read(0, 0, 1_000))
            assert await journal.end(0) == 2
            with pytest.raises(JournalUnavailable, match=DENIED):
                await journal.trim(0, 1)
            await allowed(AclOperation.DELETE, lambda: journal.trim(0, 1))
            assert [record.value for record in await journal.read(0, 1, 1_000)] == [b"b"]
    acls.revoke(USER)
