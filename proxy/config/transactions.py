"""Transactions over classic and diskless topics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from proxy.config.section import Section


class Transactions(Section):
    """Transactions over classic and diskless topics, which the brokers' markers in placeholder topics end."""

    catch_up_timeout_ms: int = Field(default=2_000, ge=10)
    """How long a proxy that waits for a marker tries to read it itself, at the placeholder topic's leader."""
    client_version: Literal[1, 2] = 2
    """The highest transaction version that clients may use (KIP-890). 2 needs brokers with `transaction.version` 2, and
    the right ClusterAction for the proxy's principal; without them, clients use 1. Start producers again after a
    change."""
    enlist_timeout_ms: int = Field(default=5_000, ge=100)
    """How long it may take to add partitions of diskless topics to a transaction: brokers are asked, and the markers of
    earlier transactions are waited for. After that, AddPartitionsToTxn is answered CONCURRENT_TRANSACTIONS, and Produce
    of transaction version 2 NOT_ENOUGH_REPLICAS. Clients retry both."""
    followed_ms: int = Field(default=600_000, ge=1_000)
    """How long a placeholder topic's partition is read after its last transaction. After that, the first marker of the
    next transaction is read up to a second later."""
    markers_kept_ms: int = Field(default=86_400_000, ge=0)
    """How long a marker stays in its placeholder topic after it was written. It is read again if Redis is restored from
    a backup without a journal: set it to more than the age of your oldest backup."""
