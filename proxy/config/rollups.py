"""What every proxy writes down of its traffic, for `diskless-proxy pipeline traffic`."""

from __future__ import annotations

from pydantic import Field

from proxy.config.section import Reloadable, Section


class Rollups(Section):
    """Sums of the traffic, which every proxy process writes to object storage under `traffic/`. See
    docs/pipeline/traffic.md."""

    enable: bool = True
    """Write them. Off, `diskless-proxy pipeline traffic` knows nothing of this proxy's traffic."""
    interval_ms: Reloadable[int] = Field(default=300_000, ge=100, le=3_600_000)
    """How often a process writes what came since the last time, and also when an hour ends: a process that is killed
    loses that much of the account at most. A process without traffic writes nothing."""
    max_rows: Reloadable[int] = Field(default=10_000, ge=10)
    """Rows of one rollup; the smallest topics' beyond that are summed up as `(others)`."""
    max_waiting: Reloadable[int] = Field(default=24, ge=1)
    """Rollups that are kept in memory while object storage fails; beyond that the oldest is dropped and counted."""
    retention_ms: Reloadable[int] = Field(default=3_024_000_000, ge=3_600_000)
    """How long rollups stay in object storage, by whole days of UTC; 35 days."""
