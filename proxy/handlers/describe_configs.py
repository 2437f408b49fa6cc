"""DescribeConfigs (API key 32): a diskless topic's configs as it has them, not as its shadow has them.

Behaviour: the broker answers, with the client's rights; then what governs data is put in from the registry. Of what the
shadow was given in its place, the next synonym (the brokers' own default) shows. `diskless.enable` is listed too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from proxy.errors import NONE
from proxy.handlers.topic_resources import TOPIC, diskless_topics_of
from proxy.topic_configs import DISKLESS_ENABLE, SHADOW_CONFIGS, governs_data
from proxy.wire.cold import encode, nested, read_request, read_response
from proxy.wire.errors import ProtocolError

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.coordinator.interface import DisklessTopic
    from proxy.request import Request
    from proxy.wire.primitives import Buffer

_DYNAMIC_TOPIC_CONFIG = 1
_DEFAULT_CONFIG = 5
_BOOLEAN = 1
_WITH_SYNONYMS = 1
"""The first version that tells where a value comes from; v0 only says whether it is a default."""


def describe_configs(connection: ClientConnection, request: Request) -> None:
    """Forward; put in what the registry knows."""
    topics = connection.context.topics
    if not topics.all():
        connection.forward(request)
        return
    asked = read_request(request.api_key, request.api_version, request.body)
    diskless = diskless_topics_of(asked.resources, topics)
    if not diskless:
        connection.forward(request)
        return
    keys = {str(one.resource_name): one.configuration_keys for one in asked.resources if one.resource_type == TOPIC}
    if request.api_version >= _WITH_SYNONYMS and not asked.include_synonyms:
        # They tell what a config would be that only the shadow has.
        request = request.with_body(encode(replace(asked, include_synonyms=True)))
    with_synonyms = request.api_version >= _WITH_SYNONYMS and asked.include_synonyms

    def rewrite(body: memoryview) -> list[Buffer]:
        try:
            response = read_response(request.api_key, request.api_version, body)
        except ProtocolError:
            return [body]  # an error code of a newer broker, for example
        results = tuple(
            _merged(result, diskless[str(result.resource_name)], keys[str(result.resource_name)])
            if result.resource_type == TOPIC and str(result.resource_name) in diskless
            else result
            for result in response.results
        )
        if request.api_version >= _WITH_SYNONYMS and not with_synonyms:
            results = tuple(_without_synonyms(result) for result in results)
        return [encode(replace(response, results=results))]

    connection.forward(request, rewrite)


def _merged(result: Any, entry: DisklessTopic, keys: tuple[str, ...] | None) -> Any:
    """The broker's result for a shadow as that of its diskless topic."""
    if result.error_code.value != NONE:
        return result
    config_type = nested(type(result), "configs")
    configs = [_as_diskless(config, entry.configs) for config in result.configs]
    if keys is None or DISKLESS_ENABLE in keys:
        configs.append(_enabled(config_type))
    return replace(result, configs=tuple(configs))


def _as_diskless(config: Any, kept: dict[str, str]) -> Any:
    """One config of the shadow, as the diskless topic has it."""
    name = str(config.name)
    if not governs_data(name):
        return config
    if name in kept:
        return _set(config, kept[name])
    return _next_synonym(config) if name in SHADOW_CONFIGS else config


def _set(config: Any, value: str) -> Any:
    if not hasattr(config, "synonyms"):
        return replace(config, value=value, is_default=False)
    others = tuple(one for one in config.synonyms if one.source != _DYNAMIC_TOPIC_CONFIG)
    synonym_type = nested(type(config), "synonyms")
    own = synonym_type(name=config.name, value=value, source=_DYNAMIC_TOPIC_CONFIG)
    return replace(config, value=value, config_source=_DYNAMIC_TOPIC_CONFIG, synonyms=(own, *others))


def _next_synonym(config: Any) -> Any:
    """Without what the shadow was given: the brokers' setting that comes next, or Kafka's default."""
    if not hasattr(config, "synonyms"):
        return replace(config, value=_DEFAULTS[str(config.name)], is_default=True)
    others = tuple(one for one in config.synonyms if one.source != _DYNAMIC_TOPIC_CONFIG)
    if not others:
        default = _DEFAULTS[str(config.name)]
        return replace(config, value=default, config_source=_DEFAULT_CONFIG, synonyms=())
    return replace(config, value=others[0].value, config_source=others[0].source, synonyms=others)


_DEFAULTS = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}
"""Kafka's own, for versions and brokers that don't tell."""


def _enabled(config_type: Any) -> Any:
    values: dict[str, Callable[[], Any]] = {
        "name": lambda: DISKLESS_ENABLE,
        "value": lambda: "true",
        "read_only": lambda: True,
        "is_default": lambda: False,
        "config_source": lambda: _DYNAMIC_TOPIC_CONFIG,
        "is_sensitive": lambda: False,
        "synonyms": lambda: (
            nested(config_type, "synonyms")(name=DISKLESS_ENABLE, value="true", source=_DYNAMIC_TOPIC_CONFIG),
        ),
        "config_type": lambda: _BOOLEAN,
        "documentation": lambda: "Whether the records of this topic are kept in object storage (KIP-1150).",
    }
    return config_type(**{name: make() for name, make in values.items() if name in config_type.__dataclass_fields__})


def _without_synonyms(result: Any) -> Any:
    return replace(result, configs=tuple(replace(config, synonyms=()) for config in result.configs))
