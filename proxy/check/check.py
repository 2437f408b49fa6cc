"""All checks of one settings file: independent checks run at the same time, each within its own time limit.

First everything is reached (brokers, store, storage) and this machine is examined. Then follow the checks that need one
or several of these. The whole takes `REACH_TIMEOUT_S` and `ASK_TIMEOUT_S` at most, however many parts are unresponsive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from proxy.brokers.upstream import BrokerUnreachable
from proxy.check import ports as port_checks
from proxy.check.addresses import check_addresses
from proxy.check.broker_configs import check_broker_configs
from proxy.check.brokers import check_brokers
from proxy.check.clock import check_clock
from proxy.check.files import check_files
from proxy.check.findings import Finding, Kind, error, from_error, ok, skipped
from proxy.check.fleet import check_cluster, check_identity, check_names
from proxy.check.journal import check_journal
from proxy.check.limits import check_limits
from proxy.check.racks import check_racks
from proxy.check.reached import Reached
from proxy.check.rights import check_rights
from proxy.check.storage import check_storage, leaving_no_folders
from proxy.check.store import check_store
from proxy.config import ConfigError, Settings, load_settings
from proxy.coordinator.connect import StoreUnfit
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import ProxyRecord
from proxy.inspection.stores import open_registry
from proxy.storage.interface import StorageError
from proxy.wire.errors import ProtocolError

REACH_TIMEOUT_S = 18.0
"""Timeout for reaching brokers (two rounds of `brokers.ADDRESS_TIMEOUT_S`), store and storage, all at the same time."""
ASK_TIMEOUT_S = 8.0
"""Timeout of each request to something that was reached; all are sent at the same time."""
_CLOSE_TIMEOUT_S = 2.0
_KNOWN = (BrokerUnreachable, CoordinatorUnavailable, ProtocolError, StorageError, StoreUnfit)
Progress = Callable[[Kind], None]
"""Called with each concern that has been checked."""


async def check_file(path: Path, progress: Progress = lambda _: None) -> list[Finding]:
    """Check everything that a start with the settings of that file needs; return the findings by kind."""
    try:
        settings = load_settings(path)
    except ConfigError as problem:
        return [_of_settings(path, one) for one in problem.findings]
    progress(Kind.SETTINGS)
    found = [ok(Kind.SETTINGS, str(path), "read"), *await check_settings(settings, progress)]
    order = list(Kind)
    return sorted(found, key=lambda finding: order.index(finding.kind))


async def check_settings(settings: Settings, progress: Progress = lambda _: None) -> list[Finding]:
    """Check everything that a start with these settings needs."""
    reached = Reached()
    with leaving_no_folders(settings):
        try:
            found = await _together(
                REACH_TIMEOUT_S,
                progress,
                (Kind.FILES, "", lambda: check_files(settings)),
                (Kind.LIMITS, "", lambda: check_limits(settings)),
                (Kind.BROKERS, "brokers.bootstrap", lambda: _reach_brokers(settings, reached)),
                (Kind.STORE, "redis.url", lambda: _reach_store(settings, reached)),
                (Kind.STORAGE, "storage.url", lambda: _reach_storage(settings, reached)),
            )
            known = await _fleet(reached)
            fleet = known or ()
            found += await _together(
                ASK_TIMEOUT_S,
                progress,
                (Kind.PORTS, "", lambda: _ports_and_addresses(settings, known, reached)),
                (Kind.PORTS, "", lambda: _joined(settings, reached, fleet)),
                (Kind.RIGHTS, "brokers.sasl", lambda: _rights(settings, reached)),
                (Kind.BROKERS, "brokers.bootstrap", lambda: _broker_configs(settings, reached)),
                (Kind.RACKS, "rack", lambda: _racks(settings, reached, fleet)),
                (Kind.CLOCK, "", lambda: _clock(settings, reached)),
                (Kind.JOURNAL, "journal.topic", lambda: check_journal(settings, reached)),
                (Kind.FLEET, "redis.url", lambda: _of_fleet(settings, reached, fleet)),
            )
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await reached.close()
    return found


async def _together(
    limit_s: float, progress: Progress, *checks: tuple[Kind, str, Callable[[], Awaitable[list[Finding]]]]
) -> list[Finding]:
    async def one(kind: Kind, where: str, check: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
        try:
            async with asyncio.timeout(limit_s):
                return await check()
        except TimeoutError:
            return [
                error(kind, where, f"no answer within {limit_s:g} s", "check that it is neither overloaded nor cut off")
            ]
        except _KNOWN as problem:
            return [from_error(kind, where, problem, "check that it is neither overloaded nor cut off")]
        except Exception as problem:  # an unexpected error must not hide the findings of the other checks
            return [
                error(kind, where, f"the check failed with {type(problem).__name__}", "report it with these settings")
            ]
        finally:
            progress(kind)

    return [finding for found in await asyncio.gather(*(one(*check) for check in checks)) for finding in found]


async def _reach_brokers(settings: Settings, reached: Reached) -> list[Finding]:
    found, reached.cluster = await check_brokers(settings)
    return found


async def _reach_store(settings: Settings, reached: Reached) -> list[Finding]:
    found, reached.store, skew_ms = await check_store(settings)
    if reached.store is not None:
        reached.ahead_ms["redis.url"] = skew_ms
    return found


async def _reach_storage(settings: Settings, reached: Reached) -> list[Finding]:
    found, reached.storage, skew_ms = await check_storage(settings)
    if reached.storage is not None:
        reached.ahead_ms["storage.url"] = skew_ms
    return found


async def _fleet(reached: Reached) -> tuple[ProxyRecord, ...] | None:
    """Return all live proxies; None if they are unknown."""
    if reached.store is None:
        return None
    try:
        return tuple(seen.record for seen in await RedisFleetStore(reached.store).look())
    except CoordinatorUnavailable:
        return None


async def _ports_and_addresses(
    settings: Settings, fleet: Sequence[ProxyRecord] | None, reached: Reached
) -> list[Finding]:
    found, bound = port_checks.check_ports(settings, fleet)
    brokers = reached.cluster.view.brokers if reached.cluster is not None else ()
    try:
        return [*found, *await check_addresses(settings, bound, brokers)]
    finally:
        for one in bound:
            one.socket.close()


async def _joined(settings: Settings, reached: Reached, fleet: Sequence[ProxyRecord]) -> list[Finding]:
    if reached.cluster is None:
        return []
    return port_checks.check_joined(settings, reached.cluster.view.brokers, fleet)


async def _rights(settings: Settings, reached: Reached) -> list[Finding]:
    if reached.cluster is None:
        return [_without(Kind.RIGHTS, "brokers")]
    names: list[str] = []
    if reached.store is not None:
        with suppress(CoordinatorUnavailable, StoreUnfit):  # reported with the store
            names = [topic.name for topic in await open_registry(settings)]
    return await check_rights(settings, reached.cluster, names)


async def _broker_configs(settings: Settings, reached: Reached) -> list[Finding]:
    if reached.cluster is None:
        return []
    return await check_broker_configs(settings, reached.cluster)


async def _racks(settings: Settings, reached: Reached, fleet: Sequence[ProxyRecord]) -> list[Finding]:
    if reached.cluster is None:
        return [_without(Kind.RACKS, "brokers")]
    served = {listeners.rack for record in fleet if record.serving for listeners in record.listeners}
    return check_racks(settings, reached.cluster.view.brokers, served)


async def _clock(settings: Settings, reached: Reached) -> list[Finding]:
    if not reached.ahead_ms:
        return [_without(Kind.CLOCK, "store and object storage")]
    return check_clock(reached.ahead_ms, settings.garbage.orphan_age_ms)


async def _of_fleet(settings: Settings, reached: Reached, fleet: Sequence[ProxyRecord]) -> list[Finding]:
    if reached.store is None:
        return [_without(Kind.FLEET, "store")]
    found = check_names(settings, fleet)
    if reached.storage is not None:
        found += await check_identity(reached.store, reached.storage)
    if reached.cluster is not None:
        found += await check_cluster(settings, reached.store, reached.cluster.cluster_id)
    return found


def _without(kind: Kind, missing: str) -> Finding:
    return skipped(kind, f"not checked, because there is no answer from the {missing}")


def _of_settings(path: Path, finding: str) -> Finding:
    where, colon, text = finding.partition(": ")
    if not colon or " " in where:  # a finding about the whole file
        return from_error(Kind.SETTINGS, "", finding)
    return from_error(Kind.SETTINGS, f"{path}: {where}", text, "fix it, see docs/configuration.md")
