"""When topics that lack replicas are looked at, and by whom: one proxy of the fleet, which holds a lease of its own.

Apart from the other housekeeping, as that may be busy for minutes, or hold still while the store is in doubt.
"""

from __future__ import annotations

import asyncio

import structlog

from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import FleetStore
from proxy.coordinator.lease import Lease, LeaseLost
from proxy.creation.replication.completion import Completion
from proxy.creation.replication.reassignments import ReassignmentsRefused
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

LEASE = "replication"
_POLL_S = 1.0
_REFUSED_AGAIN_S = 60.0
"""After the brokers have refused for lack of rights."""
_SHARE = 0.2
"""Share of the time that this may take if there is much to look at."""
_LONGEST_REST_S = 5.0
"""Longest time that a broker which joins or leaves waits because of that share; it may take more of the time then."""


class ReplicationKeeper:
    """Holds the lease when it can, and then has wishes fulfilled, often and whenever a broker comes or goes."""

    def __init__(
        self, completion: Completion, fleet_store: FleetStore, identity: str, cluster: Cluster, *, interval_s: float
    ) -> None:
        self.completion = completion
        self._lease = Lease(fleet_store, LEASE, identity, completion.lease_lost)
        self._cluster = cluster
        self.interval_s = interval_s

    async def keep_completing(self) -> None:
        """Complete topics, forever. Failures are logged once until they end."""
        loop = asyncio.get_running_loop()
        due_s, rested_s, looked_at, failing = 0.0, 0.0, frozenset[int](), ""
        while True:
            await asyncio.sleep(min(_POLL_S, self.interval_s))
            await self._lease.renew()
            live = frozenset(self._cluster.view.brokers)
            if not self._lease.held or loop.time() < (due_s if live == looked_at else rested_s):
                continue
            looked_at, pause_s, refused, began_s = live, self.interval_s, False, loop.time()
            try:
                await self._lease.work(self.completion.complete)
                failing = ""
            except LeaseLost as lost:
                log.warning("replication_lease_lost", reason=str(lost), remedy="none")
            except ReassignmentsRefused as error:
                refused = error.rights
                pause_s = _REFUSED_AGAIN_S if refused else pause_s
                if failing != str(error):
                    log.warning(
                        "topics_stay_under_replicated",
                        reason=str(error),
                        remedy="allow the proxy's principal Alter and Describe on the cluster; it is retried"
                        if error.rights
                        else "none; it is retried",
                    )
                failing = str(error)
            except (CoordinatorUnavailable, BrokerUnreachable, ProtocolError) as error:
                if failing != type(error).__name__:
                    log.warning("topics_stay_under_replicated", reason=str(error), remedy="none; it is retried")
                failing = type(error).__name__
            except Exception as error:
                # One odd answer must not end this for good, on every proxy in turn.
                if failing != type(error).__name__:
                    log.exception(
                        "replication_keeper_broken",
                        reason=f"{type(error).__name__}: {error}",
                        remedy="report it with this trace; it is retried, and other work continues",
                    )
                failing = type(error).__name__
            rest_s = (loop.time() - began_s) * (1 / _SHARE - 1)
            due_s = loop.time() + max(pause_s, rest_s)
            rested_s = due_s if refused else loop.time() + min(rest_s, _LONGEST_REST_S)
