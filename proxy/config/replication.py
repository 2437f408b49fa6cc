"""Topics that were made while brokers were missing."""

from __future__ import annotations

from pydantic import Field

from proxy.config.section import Reloadable, Section


class Replication(Section):
    """Topics that were made with fewer replicas than asked for (`enable.under.replicated.topic.creation`). One proxy of
    the fleet gives them the others as brokers come."""

    check_interval_ms: Reloadable[int] = Field(default=2_000, ge=10)
    """How often topics that lack replicas are checked, in addition to whenever a broker comes or goes."""
    partitions_at_once: Reloadable[int] = Field(default=100, ge=1)
    """Partitions of such topics that get replicas at the same time: what a new broker has to copy at once."""
