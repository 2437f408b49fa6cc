"""Settings that are to be as the brokers' own configs, compared with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from proxy.brokers.broker_defaults import DefaultsRefused, broker_configs
from proxy.brokers.cluster import Cluster
from proxy.check.findings import Finding, Kind, ok, skipped, warning
from proxy.config import Settings


class _Pair(NamedTuple):
    setting: str
    config: str
    value: Callable[[Settings], int]


_MORE = (
    _Pair("limits.max_frame_bytes", "socket.request.max.bytes", lambda settings: settings.limits.max_frame_bytes),
    _Pair("fetch.max_bytes", "fetch.max.bytes", lambda settings: settings.fetch.max_bytes),
)
"""Limits that, if smaller than the brokers', reject what the brokers would accept."""
_ALIKE = (
    _Pair(
        "producer_id_expiration_ms", "producer.id.expiration.ms", lambda settings: settings.producer_id_expiration_ms
    ),
    _Pair("limits.idle_timeout_ms", "connections.max.idle.ms", lambda settings: settings.limits.idle_timeout_ms),
)
_CLAIM = "sasl.oauthbearer.sub.claim.name"
_SELECTOR = "replica.selector.class"
_ON_DEMAND = "auto.create.topics.enable"
_NAMES = (*(pair.config for pair in (*_MORE, *_ALIKE)), _CLAIM, _SELECTOR, _ON_DEMAND)


async def check_broker_configs(settings: Settings, cluster: Cluster) -> list[Finding]:
    """Check the configs of one broker, assuming that all brokers have the same.

    Raises BrokerUnreachable and ProtocolError.
    """
    try:
        return compared(settings, await broker_configs(cluster, _NAMES))
    except DefaultsRefused:
        return [
            skipped(
                Kind.BROKERS,
                "configs of the brokers: not checked, because the proxies' principal may not describe them",
            )
        ]


def compared(settings: Settings, configs: Mapping[str, str | None]) -> list[Finding]:
    """Return a finding for each difference, and one with the brokers' configs for racks and topics on demand. Pure."""
    found = []
    for pair in (*_MORE, *_ALIKE):
        theirs = configs.get(pair.config)
        ours = pair.value(settings)
        if theirs is None or ours == int(theirs) or (pair in _MORE and ours > int(theirs)):
            continue
        text = f"is {ours}, but {pair.config} of the brokers is {theirs}"
        found.append(warning(Kind.BROKERS, pair.setting, text, f"set it to {theirs}"))
    claim = configs.get(_CLAIM)
    if claim and settings.brokers.with_sasl and claim != settings.sasl_oauthbearer_sub_claim_name:
        text = f"is {settings.sasl_oauthbearer_sub_claim_name}, but {_CLAIM} of the brokers is {claim}"
        found.append(warning(Kind.BROKERS, "sasl_oauthbearer_sub_claim_name", text, f"set it to {claim}"))
    selector = configs.get(_SELECTOR) or "none"
    text = f"{_SELECTOR} is {selector}, {_ON_DEMAND} is {configs.get(_ON_DEMAND) or 'unknown'}"
    return [*found, ok(Kind.BROKERS, "configs of the brokers", text)]
