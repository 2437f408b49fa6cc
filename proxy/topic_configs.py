"""Topic configs of diskless topics: which of them govern data and live in the registry, and what the shadow gets."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping

from proxy.compression import LEVELS
from proxy.produce_rules import CODECS, LEVEL_CONFIGS

DISKLESS_ENABLE = "diskless.enable"

_GOVERN_DATA = (
    DISKLESS_ENABLE,
    "retention.",
    "cleanup.policy",
    "segment.",
    "max.message.bytes",
    "message.timestamp.",
    "compression.",
    "delete.retention.ms",
    "remote.",
    "local.retention.",
)
SHADOW_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""What a shadow topic is given, so that transaction markers are still there when they are read."""
_ONLY = {
    "cleanup.policy": {"delete"},
    "remote.storage.enable": {"false"},
}
"""Values that this release can honour; others are refused rather than ignored."""
_ONE_OF = {
    "compression.type": {"producer", *CODECS},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}
_LONGEST, _LARGEST = 2**63 - 1, 2**31 - 1
_WHOLE_NUMBERS: dict[str, Container[int]] = {
    "retention.ms": range(-1, _LONGEST + 1),
    "retention.bytes": range(-(2**63), _LONGEST + 1),
    "max.message.bytes": range(_LARGEST + 1),
    "message.timestamp.after.max.ms": range(_LONGEST + 1),
    "message.timestamp.before.max.ms": range(_LONGEST + 1),
    **{name: LEVELS[codec] for codec, name in LEVEL_CONFIGS.items()},
}
"""With the values that brokers allow (`LogConfig`)."""


class ConfigRefused(Exception):
    """The topic can't be diskless with that config; the text says why."""


def governs_data(name: str) -> bool:
    """Whether a topic config is about data, so that a diskless topic's is in the registry."""
    return name.startswith(_GOVERN_DATA)


def diskless_by_name(name: str, patterns: Iterable[str]) -> bool:
    """Whether `default_diskless_topics` makes a topic of that name diskless; never Kafka's internal ones."""
    return not name.startswith("__") and any(re.fullmatch(pattern, name) for pattern in patterns)


def wants_diskless(configs: Mapping[str, str | None], *, default: bool) -> bool:
    """Whether `diskless.enable` is on, or left to `default`. Raises ConfigRefused where it is neither true nor false.

    A topic that is to be compacted is classic by default: tools make such topics for themselves, under names that a
    pattern may match (Streams' changelogs, Connect's and MirrorMaker's own).
    """
    if configs.get(DISKLESS_ENABLE) is None and "compact" in (configs.get("cleanup.policy") or ""):
        return False
    value = (configs.get(DISKLESS_ENABLE) or str(default)).strip().lower()
    if value not in {"true", "false"}:
        raise ConfigRefused(f"Invalid value {value!r} for configuration {DISKLESS_ENABLE}: true or false")
    return value == "true"


def registry_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The configs that govern data, for the registry. Raises ConfigRefused for what can't be honoured."""
    kept = {name: value for name, value in configs.items() if governs_data(name) and value is not None}
    for name, value in kept.items():
        if name in _ONLY and value not in _ONLY[name]:
            allowed = " or ".join(sorted(_ONLY[name]))
            raise ConfigRefused(f"{name}={value} is not supported on diskless topics yet: use {allowed}")
        if name in _ONE_OF and value not in _ONE_OF[name]:
            allowed = ", ".join(sorted(_ONE_OF[name]))
            raise ConfigRefused(f"Invalid value {value} for configuration {name}: String must be one of: {allowed}")
        if name in _WHOLE_NUMBERS and not re.fullmatch(r"\s*[-+]?[0-9]{1,19}\s*", value):
            raise ConfigRefused(f"Invalid value {value!r} for configuration {name}: not a whole number")
        if name in _WHOLE_NUMBERS and int(value) not in _WHOLE_NUMBERS[name]:
            raise ConfigRefused(f"Invalid value {value} for configuration {name}: out of the range that brokers allow")
    kept[DISKLESS_ENABLE] = "true"
    return kept


def shadow_configs(configs: Mapping[str, str | None]) -> dict[str, str | None]:
    """What the shadow topic is created with: the brokers' own affairs, and unlimited retention."""
    return {name: value for name, value in configs.items() if not governs_data(name)} | SHADOW_CONFIGS
