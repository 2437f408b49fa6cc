"""Retention's requests to the coordinator, from a topic's configs and the brokers' defaults."""

from __future__ import annotations

import pytest

from proxy.brokers.broker_defaults import RetentionDefaults, read_defaults
from proxy.housekeeping.retention import UNKNOWN, requests_of

TOPIC = bytes(16)
WEEK_MS = 604_800_000


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({"log.retention.hours": "168", "log.retention.bytes": "-1"}, (WEEK_MS, -1, "delete")),
        (
            {"log.retention.hours": "168", "log.retention.minutes": "5", "log.retention.ms": None},
            (300_000, -1, "delete"),
        ),
        ({"log.retention.hours": "1", "log.retention.minutes": "5", "log.retention.ms": "7"}, (7, -1, "delete")),
        ({"log.retention.hours": "-1", "log.retention.bytes": "1000"}, (-1, 1000, "delete")),
        ({"log.cleanup.policy": "compact"}, (-1, -1, "compact")),
        ({}, (-1, -1, "delete")),
    ],
)
def test_the_brokers_defaults(configs, expected):
    assert read_defaults(configs) == expected


@pytest.mark.parametrize(
    ("configs", "bounds"),
    [
        ({}, (100, 200, False)),
        ({"retention.ms": "5"}, (5, 200, False)),
        ({"retention.ms": "-1", "retention.bytes": "7"}, (-1, 7, False)),
        ({"message.timestamp.type": "LogAppendTime"}, (100, 200, True)),
        ({"cleanup.policy": "compact, delete"}, (100, 200, False)),
    ],
)
def test_a_topics_own_configs_go_before_the_defaults(configs, bounds):
    requests = requests_of(TOPIC, 2, configs, RetentionDefaults(100, 200))
    assert requests == [(TOPIC, 0, *bounds), (TOPIC, 1, *bounds)]


@pytest.mark.parametrize(
    ("configs", "may_go"),
    [({}, False), ({"cleanup.policy": "compact"}, False), ({"cleanup.policy": "delete"}, True)],
)
def test_the_brokers_default_to_compact_applies_unless_a_topic_overrides_it(configs, may_go):
    assert bool(requests_of(TOPIC, 1, configs, RetentionDefaults(100, 200, "compact"))) == may_go


def test_until_the_brokers_defaults_are_known_only_a_topics_own_configs_apply():
    assert requests_of(TOPIC, 1, {"retention.ms": "5"}, UNKNOWN) == []
    assert requests_of(TOPIC, 1, {"cleanup.policy": "delete"}, UNKNOWN) == []
    (request,) = requests_of(TOPIC, 1, {"cleanup.policy": "delete", "retention.ms": "5"}, UNKNOWN)
    assert request.retention_ms == 5


@pytest.mark.parametrize(
    "configs", [{"cleanup.policy": "compact"}, {"cleanup.policy": ""}, {"retention.ms": "-1", "retention.bytes": "-1"}]
)
def test_no_request_is_sent_if_nothing_may_be_deleted(configs):
    assert requests_of(TOPIC, 2, configs, RetentionDefaults(100, 200)) == []
