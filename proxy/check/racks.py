"""Checks of the racks: the settings compared with the brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from proxy.check.findings import Finding, Kind, ok, warning
from proxy.config import Settings
from proxy.wire.metadata import Broker


def check_racks(settings: Settings, brokers: Mapping[int, Broker], fleet_racks: Collection[str] = ()) -> list[Finding]:
    """Check the racks; `brokers` are the live ones, `fleet_racks` the racks that other live proxies serve."""
    racks = sorted({broker.rack for broker in brokers.values() if broker.rack})
    found = []
    rackless = sorted(node for node, broker in brokers.items() if not broker.rack)
    if rackless:
        text = f"{_brokers(rackless)} {'have' if len(rackless) > 1 else 'has'} no rack"
        found.append(warning(Kind.RACKS, "rack", text, "set broker.rack on each broker"))
    if not racks:
        return found
    known = f"the brokers' racks are {', '.join(racks)}"
    for where, rack in _named(settings):
        if rack in racks:
            found.append(ok(Kind.RACKS, where, f"{rack} is a rack of the brokers"))
            continue
        text = f"{rack} is not a rack of a live broker, so its clients use brokers of other racks: {known}"
        found.append(
            warning(
                Kind.RACKS, where, text, "set it to one of these racks; ignore this if the rack really has no broker"
            )
        )
    served = {rack for _, rack in _named(settings)} | set(fleet_racks)
    if fleet_racks and (left := [rack for rack in racks if rack not in served]):
        text = f"no live proxy serves {', '.join(left)}, so clients there cross racks"
        found.append(warning(Kind.RACKS, "rack", text, "start a proxy there"))
    return found


def _named(settings: Settings) -> list[tuple[str, str]]:
    """Racks of the settings, each with the setting that names it first."""
    named = [("rack", settings.rack)]
    named += [(f"{settings.section_of(one)}.rack", one.rack) for one in settings.all_listeners if one.rack]
    named += [(f"racks.by_network {network}", rack) for network, rack in settings.racks.by_network.items()]
    return list({rack: (where, rack) for where, rack in reversed(named)}.values())[::-1]


def _brokers(nodes: list[int]) -> str:
    return f"broker{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
