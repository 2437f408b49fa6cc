"""DescribeConfigs (API key 32): a diskless topic's configs as it has them, not as its shadow has them.

Behaviour: the broker answers, with the client's rights; then what governs data is put in from the registry. Of what the
shadow was given in its place, the next synonym (the brokers' own default) shows. `diskless.enable` is listed too.
`min.insync.replicas` is 1, whatever the shadow has: it takes no part in how a diskless batch becomes durable, and tools
compare it with the one replica that they are shown.
While this proxy's lease is out, its copy of the registry may be of any age: then REQUEST_TIMED_OUT, which is retriable.

Tools describe all topics of a cluster at once, and most topics have the same configs. So what became of a broker's
configs is cached, by their bytes and all that goes into it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from proxy.brokers.broker_defaults import DefaultsRefused, RetentionDefaults, retention_defaults
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.config import Settings
from proxy.diskless.produce_rules import APPEND_LATENCY
from proxy.process.turns import Turns
from proxy.protocol.errors import NONE, REQUEST_TIMED_OUT
from proxy.topics.topic_configs import (
    DISKLESS_ENABLE,
    MAX_MESSAGE_BYTES,
    MIN_INSYNC_REPLICAS,
    SEGMENT_BYTES,
    SHADOW_CONFIGS,
    as_described,
    governs_data,
)
from proxy.topics.topic_resources import DYNAMIC_TOPIC_CONFIG, TOPIC, being_made, diskless_topics_of
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, nested, read_entity, read_request
from proxy.wire.described_configs import Described, RecentConfigs, result_type, rewrite_described
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import Buffer

_NOT_CURRENT = (
    "This proxy can't reach the coordinator, which keeps diskless topics' configs. Ask again, or another proxy."
)
_DEFAULT_CONFIG = 5
_MIN_INSYNC_REPLICAS_SHOWN = "1"
"""The lowest value that brokers allow, and Kafka's own default."""
_KAFKAS_DEFAULTS = {SEGMENT_BYTES: "1073741824", MAX_MESSAGE_BYTES: "1048588"}
"""Kafka's own defaults; brokers return them, or what they have in their place, as synonyms."""
_BOOLEAN, _LONG = 1, 5
_OUR_OWN = {
    DISKLESS_ENABLE: (_BOOLEAN, "Whether the records of this topic are kept in object storage (KIP-1150)."),
    APPEND_LATENCY: (
        _LONG,
        "The longest time that a batch waits for others before its upload, if it is longer than the proxy's commit "
        "interval.",
    ),
}
"""Type and documentation of configs that brokers do not know."""
_MAX_CACHED = 64
"""Changed configs that are kept, each of 32 KiB at most."""
_CACHED_BYTES = 32_768


class DescribeConfigs:
    """Handler of DescribeConfigs."""

    def __init__(self, settings: Settings, *, topics: Topics, cluster: Cluster, turns: Turns) -> None:
        self._settings = settings
        self._topics = topics
        self._cluster = cluster
        self._turns = turns
        self._recent = RecentConfigs()
        self._answered = RecentConfigs()
        self._changed: OrderedDict[Any, bytes] = OrderedDict()
        """Configs for the client, by the broker's and all that they depend on."""

    def describe_configs(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward what is about no diskless topic."""
        topics = self._topics
        if not topics.all():
            client.forward(request)
            return None
        asked = read_request(request.api_key, request.api_version, request.body)
        if not diskless_topics_of(asked.resources, topics) and not being_made(asked.resources, topics):
            client.forward(request)
            return None
        return self._describe(client, request, client.open_slot(request), asked)

    async def _describe(self, client: Client, request: Request, slot: Slot, asked: Any) -> None:
        """Put in what the registry knows. Raises BrokerUnreachable."""
        topics = self._topics
        if being_made(asked.resources, topics):
            await topics.look_again()  # another proxy may have answered the creation already
        diskless = diskless_topics_of(asked.resources, topics)
        keys = {str(one.resource_name): one.configuration_keys for one in asked.resources if one.resource_type == TOPIC}
        # Synonyms show the value of a config that only the placeholder topic has.
        wider = replace(asked, include_synonyms=True)
        body = await client.ask(request, request.api_key, request.api_version, encode(wider))
        defaults, is_current = await self._defaults(), topics.is_current
        strip = not asked.include_synonyms

        def changed(result: Described) -> Buffer | None:
            is_topic = result.resource_type == TOPIC and result.error_code == NONE
            entry = diskless.get(result.name) if is_topic else None
            if entry is None and not strip:
                return None
            if entry is not None and not is_current:
                return _not_current(request.api_version, result)
            kept = None if entry is None else entry.configs
            merging = _Merging(request.api_version, kept, keys.get(result.name), defaults, strip)
            return b"".join((result.head, self._configs(result, merging)))

        try:
            rewriting = rewrite_described.steps(body, request.api_version, self._recent, changed)
            slot.fill(await self._turns.do(rewriting))
        except ProtocolError:
            slot.fill([body])  # a field of a newer broker, for example

    def _configs(self, result: Described, merging: _Merging) -> bytes:
        """Return the configs of a result for the client. Raises ProtocolError."""
        key = (result.configs, merging.key())
        found = self._changed.get(key)
        if found is not None:
            self._changed.move_to_end(key)
            return found
        found = merging.configs(result)
        if len(found) <= _CACHED_BYTES and len(result.configs) <= _CACHED_BYTES:
            self._changed[key] = found
            if len(self._changed) > _MAX_CACHED:
                self._changed.popitem(last=False)
        return found

    def skip_result(self, version: int, answer: memoryview, at: int) -> int:
        """Return the position after a result in one of its answers. Raises ProtocolError."""
        return self._answered.skip(version, answer, at)

    async def _defaults(self) -> dict[str, str]:
        """Return the values that the placeholder topic would have without its own; brokers have no synonym of time
        retention."""
        try:
            known = await retention_defaults(self._cluster)
        except (BrokerUnreachable, ProtocolError, DefaultsRefused):
            known = RetentionDefaults(self._settings.default_retention_ms, -1)
        return {
            "cleanup.policy": known.cleanup_policy,
            "retention.ms": str(known.retention_ms),
            "retention.bytes": str(known.retention_bytes),
            **_KAFKAS_DEFAULTS,
        }


class _Merging(NamedTuple):
    """Changes the configs that a broker returned for a topic."""

    version: int
    kept: dict[str, str] | None
    """Configs in the registry; None for a topic that is not diskless."""
    keys: tuple[str, ...] | None
    """Names of the requested configs; None for all."""
    defaults: dict[str, str]
    strips_synonyms: bool

    def key(self) -> Any:
        """Return the same as a key."""
        kept = None if self.kept is None else tuple(sorted(self.kept.items()))
        return self.version, kept, self.keys, tuple(self.defaults.items()), self.strips_synonyms

    def configs(self, result: Described) -> bytes:
        """Return the configs for the client. Raises ProtocolError."""
        read = read_entity(result_type(self.version), result.whole())
        if self.kept is not None:
            read = _merged(read, self.kept, self.keys, self.defaults)
        if self.strips_synonyms:
            read = _without_synonyms(read)
        return encode(read)[len(result.head) :]


def _not_current(version: int, result: Described) -> bytes:
    read = read_entity(result_type(version), result.whole())
    return encode(replace(read, error_code=ErrorCode(REQUEST_TIMED_OUT), error_message=_NOT_CURRENT, configs=()))


def _merged(result: Any, kept: dict[str, str], keys: tuple[str, ...] | None, defaults: dict[str, str]) -> Any:
    """Return the broker's result for a placeholder topic as that of its diskless topic."""
    config_type = nested(type(result), "configs")
    configs = [_as_diskless(config, kept, defaults) for config in result.configs]
    shown = {**kept, DISKLESS_ENABLE: "true"}
    for name, (config_kind, documentation) in _OUR_OWN.items():
        if name in shown and (keys is None or name in keys):
            read_only = name == DISKLESS_ENABLE
            configs.append(_our_own(config_type, name, shown[name], config_kind, documentation, read_only=read_only))
    return replace(result, configs=tuple(configs))


def _as_diskless(config: Any, kept: dict[str, str], defaults: dict[str, str]) -> Any:
    """One config of the shadow, as the diskless topic has it."""
    name = str(config.name)
    if name == MIN_INSYNC_REPLICAS:
        return _kafkas_default(config, _MIN_INSYNC_REPLICAS_SHOWN)
    if not governs_data(name):
        return config
    if name in kept:
        return _set(config, kept[name])
    return _next_synonym(config, defaults[name]) if name in SHADOW_CONFIGS else config


def _set(config: Any, value: str) -> Any:
    shown = as_described(str(config.name), value)
    others = tuple(one for one in config.synonyms if one.source != DYNAMIC_TOPIC_CONFIG)
    synonym_type = nested(type(config), "synonyms")
    own = synonym_type(name=config.name, value=value, source=DYNAMIC_TOPIC_CONFIG)
    return replace(config, value=shown, config_source=DYNAMIC_TOPIC_CONFIG, synonyms=(own, *others))


def _next_synonym(config: Any, default: str) -> Any:
    """Return the config without the placeholder topic's value: with the brokers' next setting, else their default."""
    others = tuple(one for one in config.synonyms if one.source != DYNAMIC_TOPIC_CONFIG)
    source = others[0].source if others else _DEFAULT_CONFIG
    return replace(config, value=others[0].value if others else default, config_source=source, synonyms=others)


def _kafkas_default(config: Any, value: str) -> Any:
    """Return the config as if neither the topic nor the brokers had set it."""
    own = tuple(one for one in config.synonyms if one.source == _DEFAULT_CONFIG)
    return replace(config, value=value, config_source=_DEFAULT_CONFIG, synonyms=own)


def _our_own(config_type: Any, name: str, value: str, config_kind: int, documentation: str, *, read_only: bool) -> Any:
    """Return a config that brokers do not know."""
    values: dict[str, Callable[[], Any]] = {
        "name": lambda: name,
        "value": lambda: as_described(name, value),
        "read_only": lambda: read_only,
        "config_source": lambda: DYNAMIC_TOPIC_CONFIG,
        "is_sensitive": lambda: False,
        "synonyms": lambda: (nested(config_type, "synonyms")(name=name, value=value, source=DYNAMIC_TOPIC_CONFIG),),
        "config_type": lambda: config_kind,
        "documentation": lambda: documentation,
    }
    return config_type(**{name: make() for name, make in values.items() if name in config_type.__dataclass_fields__})


def _without_synonyms(result: Any) -> Any:
    return replace(result, configs=tuple(replace(config, synonyms=()) for config in result.configs))
