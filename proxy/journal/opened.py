"""The journal of a settings file, opened for a command or a job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from proxy.coordinator.connect import StoreUnfit
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import JournalUnavailable
from proxy.journal.errors import JournalUnfit
from proxy.journal.journal import KafkaJournal
from proxy.telemetry.stats import Stats


def journal_on(cluster: Cluster, settings: Settings, stats: Stats) -> KafkaJournal | None:
    """Return the journal of the settings; None if they have none. Nothing is sent yet."""
    if settings.journal.mode == "off":
        return None
    return KafkaJournal(settings.journal, cluster, partitions=settings.redis.shards + 1, stats=stats)


@asynccontextmanager
async def opened_journal(settings: Settings) -> AsyncIterator[KafkaJournal | None]:
    """Open the journal for the time of the context; None if the settings have none.

    Raises CoordinatorUnavailable if the brokers do not answer, and StoreUnfit if the topic is missing or unfit.
    """
    cluster = Cluster(settings)
    stats = Stats(settings.limits.max_counted_topics, settings.diskless_append_commit_interval_ms)
    journal = journal_on(cluster, settings, stats)
    try:
        if journal is not None:
            await cluster.refresh()
            await journal.open(create_missing=False)
        yield journal
    except JournalUnfit as error:
        raise StoreUnfit(str(error)) from error
    except (BrokerUnreachable, JournalUnavailable) as error:
        raise CoordinatorUnavailable(
            f"the journal does not answer: {error}; it is read and written by every command and job that uses the "
            "store, so set `brokers` as for a proxy"
        ) from error
    finally:
        if journal is not None:
            await journal.close()
        cluster.service.close()
