"""The brokers' defaults apply to configs that a topic does not set, once they are known and while they are
unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.produce_rules import APPEND_LATENCY, NO_BOUND_MS, rules_of
from proxy.records.compression import GZIP, ZSTD
from proxy.topics import topic_defaults
from proxy.topics.topic_defaults import OF_BROKERS, TopicDefaults

CLUSTER: Any = object()
PLAIN = DisklessTopic("plain", b"p" * 16, 1, "live", {"diskless.enable": "true"})
OWN = DisklessTopic("own", b"o" * 16, 1, "live", {"max.message.bytes": "7", "compression.type": "zstd"})


@pytest.fixture
def defaults_of_broker(monkeypatch) -> dict[str, str | None]:
    """Return the answer of a broker, for tests to change."""
    configs: dict[str, str | None] = {"log.message.timestamp.after.max.ms": "3600000"}

    async def ask(cluster: Any, names: tuple[str, ...]) -> dict[str, str | None]:
        assert cluster is CLUSTER
        if "failure" in configs:
            raise BrokerUnreachable("no")
        return {name: configs[name] for name in names if name in configs}

    monkeypatch.setattr(topic_defaults, "broker_configs", ask)
    return configs


async def test_a_topics_own_configs_override_the_brokers(defaults_of_broker) -> None:
    defaults = TopicDefaults(CLUSTER, interval_s=60)
    assert defaults.rules(PLAIN) == rules_of({})
    defaults_of_broker |= {"message.max.bytes": "5000000", "compression.type": "gzip", "compression.gzip.level": "3"}
    defaults_of_broker |= {"log.message.timestamp.type": "LogAppendTime", "compression.zstd.level": "9", "other": "1"}
    await defaults.load()
    assert defaults.rules(PLAIN) == rules_of({})._replace(
        max_message_bytes=5_000_000, log_append_time=True, codec=GZIP, level=3
    )
    assert defaults.rules(OWN)[:2] == (7, True)
    assert defaults.rules(OWN)[4:6] == (ZSTD, 9)


async def test_times_are_bounded_as_brokers_before_kip_937_did(defaults_of_broker) -> None:
    del defaults_of_broker["log.message.timestamp.after.max.ms"]
    defaults = TopicDefaults(CLUSTER, interval_s=60)
    await defaults.load()
    assert defaults.rules(PLAIN)[2:4] == (NO_BOUND_MS, NO_BOUND_MS)
    defaults_of_broker["log.message.timestamp.difference.max.ms"] = "5"
    await defaults.load()
    assert defaults.rules(PLAIN)[2:4] == (5, 5)
    own = {"message.timestamp.difference.max.ms": "6", "message.timestamp.after.max.ms": "7"}
    assert defaults.rules(DisklessTopic("b", b"b" * 16, 1, "live", own))[2:4] == (6, 7)


async def test_a_changed_config_is_applied(defaults_of_broker) -> None:
    defaults = TopicDefaults(CLUSTER, interval_s=60)
    assert defaults.rules(OWN) is defaults.rules(OWN)
    changed = DisklessTopic("own", b"o" * 16, 1, "live", {"max.message.bytes": "8"})
    assert (defaults.rules(OWN).max_message_bytes, defaults.rules(changed).max_message_bytes) == (7, 8)
    defaults_of_broker["message.max.bytes"] = "9"
    await defaults.load()
    assert (defaults.rules(changed).max_message_bytes, defaults.rules(PLAIN).max_message_bytes) == (8, 9)


async def test_the_last_defaults_stay_when_no_broker_answers(defaults_of_broker) -> None:
    defaults = TopicDefaults(CLUSTER, interval_s=60)
    defaults_of_broker["message.max.bytes"] = "9"
    await defaults.load()
    defaults_of_broker["failure"] = None
    with pytest.raises(BrokerUnreachable):
        await defaults.load()
    await defaults.refresh()
    assert defaults.rules(PLAIN).max_message_bytes == 9


def test_every_default_is_one_that_rules_are_made_of() -> None:
    asked: set[str] = set()

    class Asked(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.add(name)
            return super().get(name, default)

    for codec in ("gzip", "lz4", "zstd"):
        rules_of(Asked({"compression.type": codec}))
    assert asked == {*OF_BROKERS.values(), APPEND_LATENCY}, "brokers know no latency of appends"
