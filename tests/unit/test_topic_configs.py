"""Configs of diskless topics: what goes to the registry, what to the shadow, what is refused."""

from __future__ import annotations

import pytest

from proxy.topic_configs import ConfigRefused, diskless_by_name, registry_configs, shadow_configs, wants_diskless

ASKED = {
    "diskless.enable": "true",
    "retention.ms": "1000",
    "max.message.bytes": "2000",
    "min.insync.replicas": "2",
    "cleanup.policy": "delete",
}


def test_what_governs_data_goes_to_the_registry() -> None:
    assert registry_configs(ASKED) == {
        "diskless.enable": "true",
        "retention.ms": "1000",
        "max.message.bytes": "2000",
        "cleanup.policy": "delete",
    }


def test_the_shadow_keeps_what_is_written_to_it() -> None:
    assert shadow_configs(ASKED) == {
        "min.insync.replicas": "2",
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
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
    ],
)
def test_what_cannot_be_honoured_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigRefused, match=name):
        registry_configs(ASKED | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.type", "uncompressed"),
        ("compression.type", "producer"),
        ("compression.type", "zstd"),
        ("compression.zstd.level", "-131072"),
        ("compression.gzip.level", "-1"),
        ("compression.lz4.level", "17"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", str(2**63 - 1)),
        ("max.message.bytes", " 100 "),
    ],
)
def test_what_brokers_allow_is_honoured(name: str, value: str) -> None:
    assert registry_configs(ASKED | {name: value})[name] == value


def test_diskless_enable_decides_over_the_name() -> None:
    assert wants_diskless({"diskless.enable": " TRUE "}, default=False)
    assert not wants_diskless({"diskless.enable": "false"}, default=True)
    assert wants_diskless({}, default=True)
    with pytest.raises(ConfigRefused, match="true or false"):
        wants_diskless({"diskless.enable": "yes"}, default=False)


def test_what_is_compacted_is_classic_unless_it_asks() -> None:
    compacted = {"cleanup.policy": "compact,delete"}
    assert not wants_diskless(compacted, default=True)
    assert wants_diskless(compacted | {"diskless.enable": "true"}, default=False)
    assert wants_diskless({"cleanup.policy": "delete"}, default=True)


def test_names_match_as_a_whole_and_internal_topics_never_do() -> None:
    assert diskless_by_name("logs.web", [r"logs\..*"])
    assert not diskless_by_name("my.logs.web", [r"logs\..*"])
    assert not diskless_by_name("__consumer_offsets", [".*"])
