"""The brokers: every address of the settings, and every broker that they name, connected to as the proxy does.

TLS and SASL are those of a start (`proxy/brokers/service.py`), and so are the texts of their errors.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from typing import Any

from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.check.broker_versions import NEWER_THAN_TRIED, of_ranges
from proxy.check.findings import Finding, Kind, Level, error, from_error, ok, warning
from proxy.config import Settings, parse_address
from proxy.protocol.api_keys import API_VERSIONS
from proxy.security.tls import TlsError
from proxy.wire.cold import read_response
from proxy.wire.errors import ProtocolError

ADDRESS_TIMEOUT_S = 8.0
"""For one broker: its connection, its TLS handshake, the proxy's authentication and one answer."""
_AT_ONCE = 32
_START = "start the brokers, or fix brokers.bootstrap"
_Address = tuple[str, int]
_Ranges = dict[int, tuple[int, int]]
"""Lowest and highest version by API key."""


async def check_brokers(settings: Settings) -> tuple[list[Finding], Cluster | None]:
    """Return the findings and, if at least one broker answers, the brokers; the caller closes `Cluster.service`."""
    try:
        cluster = Cluster(settings)
    except TlsError:
        return [], None  # reported with the certificates
    protocol = settings.brokers.security_protocol
    bootstrap = [parse_address(address) for address in settings.brokers.bootstrap]
    tried = dict(zip(bootstrap, await _ask_all(cluster, bootstrap, protocol), strict=True))
    reached = [address for address, answer in tried.items() if not isinstance(answer, str)]
    level = Level.WARNING if reached else Level.ERROR
    found = unreachable(
        "brokers.bootstrap", {_shown(at): one for at, one in tried.items() if isinstance(one, str)}, level
    )
    if not reached:
        return found, None
    try:
        async with asyncio.timeout(ADDRESS_TIMEOUT_S):
            await cluster.refresh()
    except (BrokerUnreachable, TimeoutError) as problem:
        cluster.service.close()
        text = str(problem) or "no answer to Metadata"
        if not text.startswith(tuple(map(_shown, bootstrap))):
            # The server runs and speaks Kafka.
            named = ", ".join(map(_shown, reached))
            text = f"{named}: {text}; check that this is a port of a broker, not of a controller"
        return [*found, from_error(Kind.BROKERS, "brokers.bootstrap", text, _START)], None
    return [*found, *await _check_named(cluster, tried, protocol)], cluster


async def _check_named(cluster: Cluster, tried: Mapping[_Address, Any], protocol: str) -> list[Finding]:
    """Check every live broker at its advertised address."""
    brokers = cluster.view.brokers
    addresses = [(broker.host, broker.port) for broker in brokers.values()]
    asked = [address for address in addresses if address not in tried]
    answers = {**tried, **dict(zip(asked, await _ask_all(cluster, asked, protocol), strict=True))}
    failed, found = dict[str, str](), list[Finding]()
    verdicts: dict[str, list[int]] = defaultdict(list)
    for broker, address in zip(brokers.values(), addresses, strict=True):
        answer = answers[address]
        if isinstance(answer, str):
            if address in asked:
                failed[f"broker {broker.node_id} at {_shown(address)}"] = answer
            continue
        verdicts[of_ranges(answer) or ""].append(broker.node_id)
    remedy = "set advertised.listeners of the brokers to addresses that this machine reaches"
    found += unreachable("brokers.bootstrap", failed, Level.ERROR, remedy)
    for verdict, nodes in sorted(verdicts.items()):
        named = f"{'broker' if len(nodes) == 1 else 'brokers'} {', '.join(map(str, sorted(nodes)))}"
        if not verdict:
            found.append(ok(Kind.BROKERS, "brokers.bootstrap", f"{named} of cluster {cluster.cluster_id} answer"))
        elif verdict == NEWER_THAN_TRIED:
            remedy = "none; the proxy does not offer their newer API versions to clients, see docs/compatibility.md"
            found.append(warning(Kind.BROKERS, "brokers.bootstrap", f"{named}: {verdict}", remedy))
        else:
            remedy = "upgrade these brokers, see docs/compatibility.md"
            found.append(error(Kind.BROKERS, "brokers.bootstrap", f"{named}: {verdict}", remedy))
    return found


def unreachable(where: str, failures: Mapping[str, str], level: Level, remedy: str = _START) -> list[Finding]:
    """Return one finding for each cause. `failures` has the error by broker; the text may begin with the broker's
    name."""
    named: dict[str, list[str]] = defaultdict(list)
    for name, text in failures.items():
        address = name.rpartition(" ")[2]
        named[text.removeprefix(f"{address}: ").removeprefix(f"{address} ")].append(name)
    return [
        from_error(Kind.BROKERS, where, f"{', '.join(names)}: {text}", remedy, level=level)
        for text, names in named.items()
    ]


async def _ask_all(cluster: Cluster, addresses: list[_Address], protocol: str) -> list[_Ranges | str]:
    """Return the APIs of each broker, lowest and highest version by key; a text if it can't be reached."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(address: _Address) -> _Ranges | str:
        async with turns:
            return await _or_problem(_ask(cluster, address), protocol)

    return await asyncio.gather(*(in_turn(address) for address in addresses))


async def _or_problem(asked: Awaitable[_Ranges], protocol: str) -> _Ranges | str:
    remedy = f"check that this is a Kafka port of brokers.security_protocol {protocol}"
    try:
        async with asyncio.timeout(ADDRESS_TIMEOUT_S):
            return await asked
    except TimeoutError:
        return f"no answer within {ADDRESS_TIMEOUT_S:g} s; {remedy}"
    except ProtocolError as problem:
        return f"its answer can't be parsed ({problem}); {remedy}"
    except BrokerUnreachable as problem:
        return f"{problem}; {remedy}" if str(problem).endswith("closed the connection") else str(problem)


async def _ask(cluster: Cluster, address: _Address) -> _Ranges:
    service = ServiceConnection(
        lambda: [address], cluster.access, request_timeout_s=ADDRESS_TIMEOUT_S, max_frame_bytes=1 << 20
    )
    try:
        response: Any = read_response(API_VERSIONS, 0, await service.ask(API_VERSIONS, 0, b""))
    finally:
        service.close()
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def _shown(address: _Address) -> str:
    host, port = address
    return f"{host}:{port}"
