"""Transactions over classic and diskless topics."""

from __future__ import annotations

from pydantic import Field

from proxy.config.section import Section


class Transactions(Section):
    """Transactions over classic and diskless topics, which the brokers' markers in placeholder topics end."""

    catch_up_timeout_ms: int = Field(default=2_000, ge=10)
    """How long a proxy that waits for a marker tries to read it itself, at the placeholder topic's leader."""
    enlist_timeout_ms: int = Field(default=5_000, ge=100)
    """How long AddPartitionsToTxn waits for the end of a placeholder topic and for the markers before it, before it is
    answered CONCURRENT_TRANSACTIONS, which clients retry."""
    followed_ms: int = Field(default=600_000, ge=1_000)
    """How long a placeholder topic's partition is read after its last transaction. After that, the first marker of the
    next transaction is read up to a second later."""
    markers_kept_ms: int = Field(default=86_400_000, ge=0)
    """How long a marker stays in its placeholder topic after it was written. It is read again if Redis is restored from
    a backup without a journal: set it to more than the age of your oldest backup."""
