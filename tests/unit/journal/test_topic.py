"""The check of the journal's topic: every config that could lose or reorder records is named, with its remedy."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy.config import Journal
from proxy.coordinator.interface_journal import JournalUnavailable
from proxy.journal.errors import JournalUnfit
from proxy.journal.journal import KafkaJournal
from proxy.journal.topic import check_topic, wanted_configs
from proxy.protocol import errors
from proxy.wire.partition_states import PartitionState
from tests.unit.journal.broker_double import TOPIC, ClusterDouble, cluster_double, journal_at

SETTINGS = Journal()
FOUND = {partition: PartitionState(1, 0, (1, 2, 3), (1, 2, 3)) for partition in range(3)}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"min.insync.replicas": "3"},
        {"max.message.bytes": str(2 * SETTINGS.max_append_bytes)},
        {"compression.type": "producer"},
    ],
)
def test_a_topic_that_is_at_least_as_safe_fits(changed: dict[str, str]) -> None:
    check_topic(SETTINGS, 3, FOUND, wanted_configs(SETTINGS) | changed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000"),
        ("message.timestamp.type", "CreateTime"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "1"),
        ("max.message.bytes", "1048588"),
        ("compression.type", "zstd"),
    ],
)
def test_a_config_that_does_not_fit_is_named_with_its_remedy(name: str, value: str) -> None:
    wanted = wanted_configs(SETTINGS)
    with pytest.raises(JournalUnfit, match=f"has {name}={value}; .* --add-config {name}={wanted[name]}$"):
        check_topic(SETTINGS, 3, FOUND, wanted | {name: value})


def test_all_wrong_configs_are_named_at_once() -> None:
    wrong = {"retention.ms": "1", "cleanup.policy": "compact"}
    with pytest.raises(JournalUnfit, match=r"--add-config cleanup\.policy=delete,retention\.ms=-1$"):
        check_topic(SETTINGS, 3, FOUND, wanted_configs(SETTINGS) | wrong)


@pytest.mark.parametrize("partitions", [2, 4])
def test_the_number_of_partitions_is_exact(partitions: int) -> None:
    with pytest.raises(JournalUnfit, match=f"has 3 partitions, but it needs {partitions}"):
        check_topic(SETTINGS, partitions, FOUND, wanted_configs(SETTINGS))


def test_missing_replicas_are_counted() -> None:
    found = FOUND | {1: PartitionState(1, 0, (1, 2), (1, 2))}
    with pytest.raises(JournalUnfit, match="fewer than 3 replicas in 1 of 3 partitions"):
        check_topic(SETTINGS, 3, found, wanted_configs(SETTINGS))


async def test_an_existing_topic_is_checked_when_the_journal_is_opened() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        assert (journal.identity, journal.cluster_id) == (TOPIC.topic_id, "double")
        await _rejected(double, "retention.ms")


async def _rejected(double: ClusterDouble, name: str) -> None:
    with pytest.raises(JournalUnfit, match=name):
        async with journal_at(double, configs={name: "1"}):
            raise AssertionError("opened")


async def test_brokers_that_do_not_answer_are_no_reason_to_reject_the_topic() -> None:
    async with cluster_double() as double:
        double.topic_error = errors.LEADER_NOT_AVAILABLE
        with pytest.raises(JournalUnavailable, match=r"can't be opened: .*LEADER_NOT_AVAILABLE"):
            async with journal_at(double, timeout_ms=2_000):
                raise AssertionError("opened")


async def test_a_journal_that_is_not_open_says_so() -> None:
    async with cluster_double() as double, journal_at(double) as opened:
        journal = KafkaJournal(opened._settings, opened._cluster, partitions=2, stats=opened._stats)
        for call in (journal.append(0, b""), journal.read(0, 0, 1), journal.end(0), journal.trim(0, 1)):
            with pytest.raises(JournalUnavailable, match="not open"):
                await call
        await journal.close()


def test_settings_that_could_never_write_are_rejected() -> None:
    with pytest.raises(ValidationError, match="lower min_insync_replicas"):
        Journal(replication_factor=2, min_insync_replicas=3)
    with pytest.raises(ValidationError, match="raise max_waiting_bytes"):
        Journal(max_append_bytes=1_048_576, max_waiting_bytes=65_536)
