"""Configs of diskless topics: those for the registry, those for the placeholder topic, and rejected ones."""

from __future__ import annotations

import pytest

from proxy.records.batches import control_batch
from proxy.topics.topic_configs import (
    SHADOW_CONFIGS,
    ConfigRefused,
    as_described,
    diskless_by_name,
    registry_configs,
    shadow_configs,
    wants_diskless,
)

ASKED = {
    "diskless.enable": "true",
    "retention.ms": "1000",
    "max.message.bytes": "2000",
    "min.insync.replicas": "2",
    "cleanup.policy": "delete",
}


def test_configs_of_data_go_to_the_registry() -> None:
    assert registry_configs(ASKED) == {
        "diskless.enable": "true",
        "retention.ms": "1000",
        "max.message.bytes": "2000",
        "cleanup.policy": "delete",
    }


def test_the_placeholder_keeps_its_own_configs() -> None:
    assert shadow_configs(ASKED) == {
        "min.insync.replicas": "2",
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": "16777216",
        "max.message.bytes": "100",
    }


def test_a_marker_fits_into_the_placeholder_topic() -> None:
    ids = {"producer_id": 2**62, "producer_epoch": 32_767, "coordinator_epoch": 2**31 - 1}
    marker = control_batch(2**40, 2**31 - 1, **ids, committed=True, timestamp_ms=2**41, log_append_time=False)
    assert len(marker) <= int(SHADOW_CONFIGS["max.message.bytes"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compaction"),
        ("cleanup.policy", "delete,never"),
        ("cleanup.policy", "Compact"),
        ("delete.retention.ms", "-1"),
        ("delete.retention.ms", "a day"),
        ("min.compaction.lag.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("max.compaction.lag.ms", str(2**63)),
        ("min.cleanable.dirty.ratio", "-0.01"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("min.cleanable.dirty.ratio", "half"),
        ("compression.type", "none"),
        ("compression.type", "ZSTD"),
        ("compression.zstd.level", "23"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "fast"),
        ("message.timestamp.type", "logappendtime"),
        ("message.timestamp.after.max.ms", "-1"),
        ("message.timestamp.before.max.ms", str(2**63)),
        ("retention.ms", "-2"),
        ("remote.storage.enable", "true"),
        ("max.message.bytes", "many"),
        ("diskless.append.latency.ms", "-1"),
        ("diskless.append.latency.ms", "60001"),
    ],
)
def test_unsupported_values_are_rejected(name: str, value: str) -> None:
    with pytest.raises(ConfigRefused, match=name):
        registry_configs(ASKED | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", " compact , delete "),
        ("cleanup.policy", "delete,compact"),
        ("cleanup.policy", ""),
        ("delete.retention.ms", "0"),
        ("min.compaction.lag.ms", "0"),
        ("max.compaction.lag.ms", "1"),
        ("min.cleanable.dirty.ratio", "0"),
        ("min.cleanable.dirty.ratio", " 1.0d "),
        ("min.cleanable.dirty.ratio", "1e-3"),
        ("min.cleanable.dirty.ratio", ".5"),
        ("compression.type", "uncompressed"),
        ("compression.type", "producer"),
        ("compression.type", "zstd"),
        ("compression.zstd.level", "-131072"),
        ("compression.gzip.level", "-1"),
        ("compression.lz4.level", "17"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", str(2**63 - 1)),
        ("max.message.bytes", " 100 "),
        ("diskless.append.latency.ms", "60000"),
    ],
)
def test_values_that_brokers_allow_are_supported(name: str, value: str) -> None:
    assert registry_configs(ASKED | {name: value})[name] == value


def test_the_least_age_of_what_is_compacted_is_not_above_the_highest() -> None:
    lags = {"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "1000"}
    assert registry_configs(lags) == lags | {"diskless.enable": "true"}
    with pytest.raises(ConfigRefused, match=r"min.compaction.lag.ms \(1001\) > max.compaction.lag.ms \(1000\)"):
        registry_configs(lags | {"min.compaction.lag.ms": "1001"})


@pytest.mark.parametrize(
    ("name", "value", "described"),
    [
        ("retention.ms", " +5 ", "5"),
        ("cleanup.policy", " delete , compact", "delete,compact"),
        ("cleanup.policy", "", ""),
        ("cleanup.policy", "compact,delete, compact", "compact,delete"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", "0", "0.0"),
        ("min.cleanable.dirty.ratio", ".250f", "0.25"),
        ("min.cleanable.dirty.ratio", "0.001", "0.001"),
        ("min.cleanable.dirty.ratio", "0.0001", "1.0E-4"),
        ("min.cleanable.dirty.ratio", "0.000125", "1.25E-4"),
        ("compression.type", "zstd", "zstd"),
    ],
)
def test_values_are_described_as_brokers_write_them(name: str, value: str, described: str) -> None:
    assert as_described(name, value) == described


def test_the_latency_of_appends_stays_out_of_the_placeholder() -> None:
    assert "diskless.append.latency.ms" not in shadow_configs({"diskless.append.latency.ms": "2000"})


def test_configs_of_compaction_stay_out_of_the_placeholder() -> None:
    configs = {
        "cleanup.policy": "compact",
        "delete.retention.ms": "5",
        "min.cleanable.dirty.ratio": "0.2",
        "min.compaction.lag.ms": "3",
        "max.compaction.lag.ms": "4",
    }
    assert registry_configs(configs) == configs | {"diskless.enable": "true"}
    assert shadow_configs(configs) == SHADOW_CONFIGS


def test_diskless_enable_decides_over_the_name() -> None:
    assert wants_diskless({"diskless.enable": " TRUE "}, default=False)
    assert not wants_diskless({"diskless.enable": "false"}, default=True)
    assert wants_diskless({}, default=True)
    with pytest.raises(ConfigRefused, match="true or false"):
        wants_diskless({"diskless.enable": "yes"}, default=False)


def test_a_compacted_topic_is_classic_unless_it_asks_for_diskless() -> None:
    compacted = {"cleanup.policy": "compact,delete"}
    assert not wants_diskless(compacted, default=True)
    assert wants_diskless(compacted | {"diskless.enable": "true"}, default=False)
    assert wants_diskless({"cleanup.policy": "delete"}, default=True)


def test_names_match_as_a_whole_and_internal_topics_never_do() -> None:
    assert diskless_by_name("logs.web", [r"logs\..*"])
    assert not diskless_by_name("my.logs.web", [r"logs\..*"])
    assert not diskless_by_name("__consumer_offsets", [".*"])
