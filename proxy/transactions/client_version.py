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
from proxy.protocol.errors import CLUSTER_AUTHORIZATION_FAILED
from proxy.transactions.additions import ADD_VERSION, add_partitions_request
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
    body = add_partitions_request(_NOBODY, _NO_PRODUCER_ID, _NO_EPOCH, {}, verify=True)
    answer: Any = read_response(ADD_PARTITIONS_TO_TXN, ADD_VERSION, await ask(ADD_PARTITIONS_TO_TXN, ADD_VERSION, body))
    return bool(answer.error_code.value != CLUSTER_AUTHORIZATION_FAILED)


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

    @property
    def is_known(self) -> bool:
        """Return whether `learn` has nothing to ask now."""
        return self._settings.client_version == 1 or self._now() < self._until_s

    @property
    def is_1(self) -> bool:
        """Return whether clients are held at version 1."""
        return self._settings.client_version == 1 or not self._may_add

    async def learn(self, brokers_version: int) -> None:
        """Learn it. `brokers_version`: the feature `transaction.version` of the brokers."""
        self._until_s = self._now() + _KEPT_S
        if brokers_version < 2:
            self._may_add = False
            return
        try:
            async with asyncio.timeout(_LONGEST_S):
                self._may_add = await may_add_partitions(self._ask)
        except (TimeoutError, BrokerUnreachable, ProtocolError):
            # What was true a minute ago most likely is.
            self._until_s = self._now() + _KEPT_IF_UNKNOWN_S
            return
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
