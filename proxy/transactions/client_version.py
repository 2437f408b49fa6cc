"""The transaction version that clients may use: 2 (KIP-890) if the brokers have it and let the proxy do its part.

With version 2, Produce adds partitions to a transaction, so the proxy adds the diskless ones (`additions.py`). Brokers
allow that only to a principal with `ClusterAction`. Whether the proxy's has it is asked when a client wants to know the
versions (ApiVersions), and the answer is kept for a minute: a request that adds nothing shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from proxy.brokers.broker_metadata import Ask
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config.transactions import Transactions
from proxy.protocol.api_keys import ADD_PARTITIONS_TO_TXN
from proxy.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, NONE
from proxy.transactions.coordinators import VERSION, Asked, request_of
from proxy.wire.cold import read_response
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

_KEPT_S = 60.0
_KEPT_IF_UNKNOWN_S = 5.0
_LONGEST_S = 1.0
"""Longest time for which a client waits for the answer."""
_NOBODY, _NO_PRODUCER_ID, _NO_EPOCH = "diskless-proxy", -1, -1


async def may_add_partitions(ask: Ask) -> bool:
    """Return whether the principal may add partitions to transactions, as a broker says. `ask`: a service connection's.

    Raises BrokerUnreachable and ProtocolError.
    """
    body = request_of([Asked(_NOBODY, _NO_PRODUCER_ID, _NO_EPOCH, ())], verify=True)
    answer: Any = read_response(ADD_PARTITIONS_TO_TXN, VERSION, await ask(ADD_PARTITIONS_TO_TXN, VERSION, body))
    error_code = int(answer.error_code.value)
    if error_code not in (NONE, CLUSTER_AUTHORIZATION_FAILED):
        raise ProtocolError(f"AddPartitionsToTxn that adds nothing answers error {error_code}")
    return error_code == NONE


class ClientVersion:
    """Knows which transaction version clients may use."""

    def __init__(self, settings: Transactions, ask: Ask, now: Callable[[], float]) -> None:
        """`ask`: a service connection's, to any broker. `now`: monotonic seconds."""
        self._settings = settings
        self._ask = ask
        self._now = now
        self._until_s = 0.0
        self._may_add = False
        self._was_denied = False
        self._learning: asyncio.Task[None] | None = None

    @property
    def is_known(self) -> bool:
        """Return whether `learn` has nothing to ask now."""
        return self._settings.client_version == 1 or self._now() < self._until_s

    @property
    def is_1(self) -> bool:
        """Return whether clients are held at version 1."""
        return self._settings.client_version == 1 or not self._may_add

    async def learn(self, brokers_version: int) -> None:
        """Learn it. `brokers_version`: the feature `transaction.version` of the brokers.

        One question is asked at a time: a client that got version 1 only because the answer was not there yet would use
        it for as long as it runs.
        """
        if self._learning is None:
            self._learning = asyncio.ensure_future(self._learn(brokers_version))
        await asyncio.shield(self._learning)

    async def _learn(self, brokers_version: int) -> None:
        try:
            kept_s = await self._kept_s(brokers_version)
            self._until_s = self._now() + kept_s
        finally:
            self._learning = None

    async def _kept_s(self, brokers_version: int) -> float:
        """Ask, if the brokers have version 2, and return how long the answer is kept."""
        if brokers_version < 2:
            self._may_add = False
            return _KEPT_S
        try:
            async with asyncio.timeout(_LONGEST_S):
                self._may_add = await may_add_partitions(self._ask)
        except (TimeoutError, BrokerUnreachable, ProtocolError):
            return _KEPT_IF_UNKNOWN_S  # what was true a minute ago most likely is
        denied = not self._may_add
        if denied and not self._was_denied:
            log.warning(
                "transaction_version_1",
                reason="the proxy's principal lacks the right ClusterAction",
                effect="clients use transaction version 1, also for classic topics",
                remedy="allow the proxy's principal ClusterAction on the cluster, or set transactions.client_version "
                "to 1: docs/transactions.md",
            )
        self._was_denied = denied
        return _KEPT_S
