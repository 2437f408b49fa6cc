"""The journal: its topic can hold it, it belongs to this deployment, and the proxy has the rights to use it."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.brokers.cluster import Cluster
from proxy.check.findings import Finding, Kind, error, from_error, ok, skipped, warning
from proxy.check.reached import Reached
from proxy.config import Settings
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import StoreUnfit
from proxy.coordinator.interface_journal import JournalUnavailable
from proxy.coordinator.layout import layout_problems
from proxy.guard.identity import check_identity
from proxy.guard.journal_identity import check_no_journal, has_records, of_another, stored_journal, written_without
from proxy.journal.errors import JournalUnfit, TooFewBrokers
from proxy.journal.journal import KafkaJournal
from proxy.journal.rights import NEEDED, grant_command
from proxy.journal.topic import check_topic, create_topic, find_topic, missing, topic_configs
from proxy.protocol.api_keys import METADATA
from proxy.storage.interface import ObjectStorage
from proxy.telemetry.stats import Stats
from proxy.wire.metadata import build_metadata_request, metadata_topics

_VERSION = 9
_WHERE, _MODE = "journal.topic", "journal.mode"


async def check_journal(settings: Settings, reached: Reached) -> list[Finding]:
    """Return the findings. Raises BrokerUnreachable, ProtocolError, StorageError and CoordinatorUnavailable."""
    if reached.store is not None and (reason := await _not_usable(settings, reached.store, reached.storage)):
        return [skipped(Kind.JOURNAL, f"not checked, because {reason}")]
    try:
        if settings.journal.mode == "off":
            return await _without_journal(reached)
        return await _with_journal(settings, reached)
    except (JournalUnfit, JournalUnavailable, TooFewBrokers) as problem:
        return [from_error(Kind.JOURNAL, _WHERE, problem)]


async def _not_usable(settings: Settings, store: Store, storage: ObjectStorage | None) -> str | None:
    """Return why no journal belongs to this store and storage, as other findings report it."""
    if await layout_problems(store, settings.redis):
        return "the store has data of another layout"
    if storage is None:
        return None
    try:
        await check_identity(store, storage)
    except StoreUnfit:
        return "the store and object storage don't belong together"
    return None


async def _without_journal(reached: Reached) -> list[Finding]:
    if reached.storage is not None:
        await check_no_journal(reached.storage)
    return [ok(Kind.JOURNAL, _MODE, "is off, so acknowledged records are lost if Redis loses its newest writes")]


async def _with_journal(settings: Settings, reached: Reached) -> list[Finding]:
    if reached.cluster is None:
        return [skipped(Kind.JOURNAL, "not checked, because there is no answer from the brokers")]
    noted = None if reached.storage is None else await stored_journal(reached.storage)
    if noted is None and reached.store is not None and (problem := await written_without(reached.store)):
        return [from_error(Kind.JOURNAL, _MODE, problem)]
    journal, connection, partitions = settings.journal, reached.cluster.service, settings.redis.shards + 1
    found = await find_topic(connection, journal.topic)
    if found is None:
        if noted is not None:
            return [from_error(Kind.JOURNAL, _WHERE, missing(journal.topic))]
        await create_topic(connection, journal, partitions, only_try=True)
        text = f"does not exist yet; the first proxy creates {journal.topic} with {partitions} partitions"
        return [ok(Kind.JOURNAL, _WHERE, f"{text} and {journal.replication_factor} replicas")]
    lacking = await _lacking(reached.cluster, journal.topic)
    if lacking:
        return [of_lacking(settings, lacking)]
    check_topic(journal, partitions, found.partitions, await topic_configs(connection, journal))
    if noted is None and reached.storage is not None:
        if problem := await _of_another_deployment(settings, reached.cluster):
            return [from_error(Kind.JOURNAL, _WHERE, problem)]
    elif noted is not None and noted != found.topic_id.hex():
        return [from_error(Kind.JOURNAL, _WHERE, of_another(found.topic_id.hex(), noted))]
    text = f"{journal.topic} has {partitions} partitions and the configs that a journal needs"
    return [ok(Kind.JOURNAL, _WHERE, text)]


def of_lacking(settings: Settings, lacking: Sequence[str]) -> Finding:
    """Return the finding about rights that the proxy's principal lacks on the topic."""
    sasl = settings.brokers.sasl
    command = grant_command(settings.journal.topic, lacking, sasl.username if sasl is not None else "")
    rights = f"right{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}"
    if list(lacking) == ["Delete"]:
        text = f"may not delete records of {settings.journal.topic}, so the journal grows forever: {rights} is missing"
        return warning(Kind.JOURNAL, _WHERE, text, f"run {command}")
    verb = "are" if len(lacking) > 1 else "is"
    return error(Kind.JOURNAL, _WHERE, f"on {settings.journal.topic} the {rights} {verb} missing", f"run {command}")


async def _of_another_deployment(settings: Settings, cluster: Cluster) -> str | None:
    stats = Stats(settings.limits.max_counted_topics, settings.diskless_append_commit_interval_ms)
    partitions = settings.redis.shards + 1
    journal = KafkaJournal(settings.journal, cluster, partitions=partitions, stats=stats)
    try:
        await journal.open(create_missing=False)
        return await has_records(journal, partitions)
    finally:
        await journal.close()


async def _lacking(cluster: Cluster, topic: str) -> list[str]:
    """Return the names of the rights that the proxy's principal lacks on an existing topic."""
    body = build_metadata_request(_VERSION, [topic], topic_authorized_operations=True)
    topics = metadata_topics(await cluster.service.ask(METADATA, _VERSION, body), _VERSION)
    operations = next((one.authorized_operations for one in topics if one.name == topic), 0)
    return [name for name, bit in NEEDED.items() if not operations & bit]
