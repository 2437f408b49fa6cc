"""Sums of the traffic that every proxy writes, for `diskless-proxy pipeline traffic`."""

from __future__ import annotations

from pydantic import Field

from proxy.config.section import Reloadable, Section


class Rollups(Section):
    """Sums of the traffic, which every proxy process writes to object storage under `traffic/`. See
    docs/pipeline/traffic.md."""

    enable: bool = True
    """Write rollups. If false, `diskless-proxy pipeline traffic` knows nothing about this proxy's traffic."""
    interval_ms: Reloadable[int] = Field(default=300_000, ge=100, le=3_600_000)
    """How often a process writes the traffic since its last rollup. It also writes at the end of each hour. A process
    that is killed loses at most this much of the account. A process without traffic writes nothing."""
    max_rows: Reloadable[int] = Field(default=10_000, ge=10)
    """Maximum number of rows of one rollup. The rows of the smallest topics beyond it are summed up as `(others)`."""
    max_waiting: Reloadable[int] = Field(default=24, ge=1)
    """Number of rollups that are kept in memory while object storage fails. Beyond it, the oldest rollup is dropped and
    counted."""
    retention_ms: Reloadable[int] = Field(default=3_024_000_000, ge=3_600_000)
    """How long rollups stay in object storage, in whole days of UTC. The default is 35 days."""
