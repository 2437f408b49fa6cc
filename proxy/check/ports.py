"""The ports: free, or taken by a running proxy of these very settings."""

from __future__ import annotations

from collections.abc import Collection

from proxy.check.findings import Finding, Kind, Level, error, from_error, ok, warning
from proxy.config import Listeners, Settings, parse_node_ids
from proxy.coordinator.interface_fleet import ListenersRecord, ProxyRecord
from proxy.process.broker_ports import remedy_for
from proxy.process.ports import Bound, StartError, bind_free, bind_late, try_admin


def check_ports(settings: Settings, fleet: Collection[ProxyRecord] | None) -> tuple[list[Finding], list[Bound]]:
    """Check the ports; return the findings, and sockets that hold the free ports, for the caller to close.

    `fleet` has all live proxies, if they are known.
    """
    if fleet is None:
        found, bound = check_ports(settings, ())
        return [_perhaps_ours(settings, one) if one.level is Level.ERROR else one for one in found], bound
    bound, taken = bind_free(settings)
    running = running_of(settings, fleet)
    found = []
    for listeners in settings.all_listeners:
        section, ports = settings.section_of(listeners), listeners.ports.values()
        problems = {port: taken[port] for port in ports if port in taken}
        by_others = [problem for port, problem in problems.items() if port not in _ports_of(running)]
        if by_others:
            found.append(_taken(section, by_others))
        elif problems:
            found.append(ok(Kind.PORTS, section, f"taken by the running proxy {settings.identity}, of these settings"))
        else:
            free = f"all {len(ports)} ports" if len(ports) > 1 else f"port {listeners.bootstrap_port}"
            text = f"{free} on {listeners.host} {'are' if len(ports) > 1 else 'is'} free"
            found.append(ok(Kind.PORTS, section, text))
    return [*found, _admin(settings, running)], bound


def check_joined(settings: Settings, brokers: Collection[int], fleet: Collection[ProxyRecord]) -> list[Finding]:
    """Look at the ports of live brokers outside of `broker_node_ids`; `brokers` are all that live."""
    found, held = list[Finding](), _ports_of(running_of(settings, fleet))
    for listeners in settings.all_listeners:
        if listeners.by_name:
            where = f"{settings.section_of(listeners)}.sni_broker_host"
            found.append(ok(Kind.PORTS, where, "gives each broker a name, also those that join later"))
            continue
        left = sorted(set(brokers) - set(listeners.node_ids))
        unlisted, where = list[int](), f"{settings.section_of(listeners)}.broker_node_ids"
        for node_id in left:
            if listeners.port_of(node_id) in held:
                unlisted.append(node_id)
                continue
            try:
                bind_late(settings, listeners, node_id).socket.close()
                unlisted.append(node_id)
            except StartError as problem:
                finding = from_error(Kind.PORTS, "", problem)
                text = f"{finding.text}, so clients do not get the address of broker {node_id}"
                found.append(error(Kind.PORTS, "", text, finding.remedy))
        if unlisted:
            ids = ", ".join(map(str, unlisted))
            text = f"is {listeners.broker_node_ids!r}, without broker {ids}"
            text += ": its port is bound while the proxy runs"
            found.append(warning(Kind.PORTS, where, text, remedy_for(unlisted)))
        elif not left:
            found.append(ok(Kind.PORTS, where, f"has a port for each of the {len(brokers)} live brokers"))
    return found


def running_of(settings: Settings, fleet: Collection[ProxyRecord]) -> list[ProxyRecord]:
    """Return the live proxies that have these settings' name and addresses: one, or its workers."""
    own = {addresses_of(settings, listeners) for listeners in settings.all_listeners}
    return [
        record
        for record in fleet
        if record.proxy_id.rpartition("#")[0] == settings.identity
        and {_addresses(one) for one in record.listeners} == own
    ]


def doubles(settings: Settings, fleet: Collection[ProxyRecord]) -> dict[str, str]:
    """Return the live proxies with this name and other addresses: a bootstrap address of each, by proxy ID."""
    named = [record for record in fleet if record.proxy_id.rpartition("#")[0] == settings.identity]
    return {
        record.proxy_id: ", ".join(f"{one.host}:{one.bootstrap_port}" for one in record.listeners)
        for record in named
        if not running_of(settings, [record])
    }


def addresses_of(settings: Settings, listeners: Listeners) -> tuple[str, str, str, int, int, str]:
    """Return the part of what the fleet knows about listeners that identifies them."""
    rack, host = settings.rack_of(listeners), listeners.client_host
    ports = listeners.bootstrap_port, listeners.broker_port_start
    return listeners.name, rack, host, *ports, listeners.sni_broker_host


def _addresses(one: ListenersRecord) -> tuple[str, str, str, int, int, str]:
    return one.name, one.rack, one.host, one.bootstrap_port, one.broker_port_start, one.sni_broker_host


def _ports_of(running: Collection[ProxyRecord]) -> set[int]:
    """Return the ports that it listens to; the settings may name more by now."""
    return {
        port
        for record in running
        for one in record.listeners
        for port in (
            one.bootstrap_port,
            *(() if one.sni_broker_host else (one.broker_port_start + node for node in parse_node_ids(one.node_ids))),
        )
    }


def _taken(section: str, problems: list[StartError]) -> Finding:
    first = from_error(Kind.PORTS, "", problems[0])
    more = f", as are {len(problems) - 1} more ports of {section}" if len(problems) > 1 else ""
    return error(Kind.PORTS, "", first.text + more, first.remedy)


def _perhaps_ours(settings: Settings, taken: Finding) -> Finding:
    """Return a warning: without the store it is unknown whether a proxy with these settings has the port, so don't end
    it."""
    return warning(
        taken.kind,
        taken.where,
        taken.text,
        f"none, if the running proxy {settings.identity} has the port, which is unknown while the store does "
        f"not answer. Otherwise {taken.remedy}",
    )


def _admin(settings: Settings, running: Collection[ProxyRecord]) -> Finding:
    admin = settings.admin
    try:
        try_admin(admin)
    except StartError as problem:
        # A release that does not report its version may have this port.
        if any(not one.version or one.admin.rpartition(":")[2] == str(admin.port) for one in running):
            return ok(Kind.PORTS, "admin.port", f"taken by the running proxy {settings.identity}, of these settings")
        return from_error(Kind.PORTS, "", problem)
    return ok(Kind.PORTS, "admin.port", f"{admin.host}:{admin.port} is free" if admin.port else "any that is free")
