"""Configs of diskless topics: which of them govern data and live in the registry, and which the placeholder topic
gets."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping
from decimal import Decimal

from proxy.diskless.produce_rules import APPEND_LATENCY, CODECS, LEVEL_CONFIGS
from proxy.protocol.cleanup_policy import CLEANUP_POLICY, COMPACT, DELETE, cleanup_policies, is_compacted
from proxy.records.compression import LEVELS

DISKLESS_ENABLE = "diskless.enable"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
SEGMENT_BYTES = "segment.bytes"
MAX_MESSAGE_BYTES = "max.message.bytes"
MAX_APPEND_LATENCY_MS = 60_000
"""A producer's request times out after 30 seconds by default, and its delivery after 120."""

_GOVERN_DATA = (
    DISKLESS_ENABLE,
    APPEND_LATENCY,
    "retention.",
    CLEANUP_POLICY,
    "segment.",
    MAX_MESSAGE_BYTES,
    "message.timestamp.",
    "compression.",
    "delete.retention.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "remote.",
    "local.retention.",
)
SHADOW_CONFIGS = {
    CLEANUP_POLICY: DELETE,
    "retention.ms": "-1",
    "retention.bytes": "-1",
    SEGMENT_BYTES: "16777216",
    MAX_MESSAGE_BYTES: "100",
}
"""Configs of a placeholder topic. They keep transaction markers, which have 78 bytes, until the proxies delete them. A
larger batch did not come through a proxy, so brokers reject it."""
_ONLY = {
    "remote.storage.enable": {"false"},
}
"""Values that this release supports; others are rejected rather than ignored."""
_ONE_OF = {
    "compression.type": {"producer", *CODECS},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}
_LONGEST, _LARGEST = 2**63 - 1, 2**31 - 1
_WHOLE_NUMBERS: dict[str, Container[int]] = {
    "retention.ms": range(-1, _LONGEST + 1),
    "retention.bytes": range(-(2**63), _LONGEST + 1),
    MAX_MESSAGE_BYTES: range(_LARGEST + 1),
    "message.timestamp.difference.max.ms": range(_LONGEST + 1),
    "message.timestamp.after.max.ms": range(_LONGEST + 1),
    "message.timestamp.before.max.ms": range(_LONGEST + 1),
    "delete.retention.ms": range(_LONGEST + 1),
    "min.compaction.lag.ms": range(_LONGEST + 1),
    "max.compaction.lag.ms": range(1, _LONGEST + 1),
    APPEND_LATENCY: range(MAX_APPEND_LATENCY_MS + 1),
    **{name: LEVELS[codec] for codec, name in LEVEL_CONFIGS.items()},
}
"""With the values that brokers allow (`LogConfig`)."""
_FRACTION = "min.cleanable.dirty.ratio"


class ConfigRefused(Exception):
    """The topic can't be diskless with that config; the text says why."""


def governs_data(name: str) -> bool:
    """Return whether a topic config is about data, so that a diskless topic's is in the registry."""
    return name.startswith(_GOVERN_DATA)


def is_known_to_brokers(name: str, *, diskless: bool) -> bool:
    """Return whether brokers are to judge a topic's config. They reject a classic topic with a config of diskless
    topics."""
    return name != DISKLESS_ENABLE and not (diskless and name == APPEND_LATENCY)


def diskless_by_name(name: str, patterns: Iterable[str]) -> bool:
    """Return whether `default_diskless_topics` makes a topic of that name diskless; never Kafka's internal ones."""
    return not name.startswith("__") and any(re.fullmatch(pattern, name) for pattern in patterns)


def wants_diskless(configs: Mapping[str, str | None], *, default: bool) -> bool:
    """Return whether `diskless.enable` is on, or `default` if it is not set. Raises ConfigRefused for an invalid value.

    A topic with compaction is classic by default: tools create such topics for themselves, under names that a pattern
    may match (Streams' changelogs, Connect's and MirrorMaker's own).
    """
    if configs.get(DISKLESS_ENABLE) is None and is_compacted(configs):
        return False
    value = (configs.get(DISKLESS_ENABLE) or str(default)).strip().lower()
    if value not in {"true", "false"}:
        raise ConfigRefused(f"Invalid value {value!r} for configuration {DISKLESS_ENABLE}: true or false")
    return value == "true"


def registry_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the configs that govern data, for the registry. Raises ConfigRefused for what can't be honoured."""
    kept = {name: value for name, value in configs.items() if governs_data(name) and value is not None}
    for name, value in kept.items():
        if reason := _refusal(name, value):
            raise ConfigRefused(reason)
    _check_together(kept)
    kept[DISKLESS_ENABLE] = "true"
    return kept


def _refusal(name: str, value: str) -> str:
    """Why a diskless topic can't have that value; nothing if it can."""
    if name in _ONLY and value not in _ONLY[name]:
        return f"{name}={value} is not supported on diskless topics yet: use {' or '.join(sorted(_ONLY[name]))}"
    invalid = f"Invalid value {value} for configuration {name}: "
    if name in _ONE_OF and value not in _ONE_OF[name]:
        return f"{invalid}String must be one of: {', '.join(sorted(_ONE_OF[name]))}"
    if name in _WHOLE_NUMBERS and not re.fullmatch(r"\s*[-+]?[0-9]{1,19}\s*", value):
        return f"Invalid value {value!r} for configuration {name}: not a whole number"
    if name in _WHOLE_NUMBERS and int(value) not in _WHOLE_NUMBERS[name]:
        return f"{invalid}out of the range that brokers allow"
    if name == _FRACTION and not 0 <= java_double(value) <= 1:
        return f"{invalid}a number from 0 to 1 is wanted"
    if name == CLEANUP_POLICY and not set(cleanup_policies({name: value})) <= {COMPACT, DELETE}:
        return f"{invalid}String must be one of: {COMPACT}, {DELETE}"
    return ""


def java_double(value: str) -> float:
    """Return a decimal number as Java's `Double.parseDouble` reads it; not a number if it is invalid."""
    found = re.fullmatch(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?)[fFdD]?\s*", value)
    return float(found[1]) if found else math.nan


def _check_together(configs: Mapping[str, str]) -> None:
    """Check several configs together as `LogConfig.validateValues` does. Raises ConfigRefused."""
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    least_ms, most_ms = int(configs.get(least, 0)), int(configs.get(most, _LONGEST))
    if least_ms > most_ms:
        raise ConfigRefused(f"conflict topic config setting {least} ({least_ms}) > {most} ({most_ms})")


def as_described(name: str, value: str) -> str:
    """Return a config's value as brokers describe it, whichever way it was written when it was set."""
    if name in _WHOLE_NUMBERS:
        return str(int(value))
    if name == CLEANUP_POLICY:
        return ",".join(cleanup_policies({name: value}))
    if name == _FRACTION:
        number = java_double(value)
        # As Java writes a double.
        digits, _, exponent = f"{Decimal(repr(number)):e}".partition("e")
        return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}" if 0 < number < 1e-3 else str(number)
    return value


def shadow_configs(configs: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the configs for the placeholder topic: its own, and those that concern the brokers alone."""
    return {name: value for name, value in configs.items() if not governs_data(name)} | SHADOW_CONFIGS
