"""Topics that were created while brokers were missing."""

from __future__ import annotations

from pydantic import Field

from proxy.config.section import Reloadable, Section


class Replication(Section):
    """Topics that were created with fewer replicas than requested (`enable.under.replicated.topic.creation`).

    One proxy of the fleet adds the missing replicas when brokers join.
    """

    check_interval_ms: Reloadable[int] = Field(default=2_000, ge=10)
    """How often topics that lack replicas are checked. They are also checked whenever a broker joins or leaves."""
    partitions_at_once: Reloadable[int] = Field(default=100, ge=1)
    """Number of partitions of such topics that get replicas at the same time. It bounds what a new broker has to copy
    at once."""
