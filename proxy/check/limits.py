"""Limits of this machine: open files, and memory for what the settings allow."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from proxy.check.findings import Finding, Kind, ok, warning
from proxy.config import Settings
from proxy.process import open_files
from proxy.process.memory_limit import container_limits

_MIB = 1 << 20
_PROCESS_BYTES = 100 * _MIB
"""Memory of a process without buffers and caches, from `benchmarks/results/connections.json`."""


async def check_limits(settings: Settings) -> list[Finding]:
    """Check the limits of this process; a service manager may set others."""
    return [of_open_files(settings, open_files.raise_limit()), of_memory(settings, memory_bytes())]


def of_open_files(settings: Settings, limit: int) -> Finding:
    """Return whether `limit` open files allow `limits.max_connections`."""
    wanted, where = settings.limits.max_connections, "limits.max_connections"
    unlimited = wanted or open_files.MOST_WITHOUT_LIMIT
    allowed = unlimited if limit == resource.RLIM_INFINITY else open_files.connections_allowed(settings, limit)
    if not wanted and allowed >= open_files.FEW:
        return ok(Kind.LIMITS, where, f"{allowed:,}, as many as the limit of open files allows")
    if not wanted:
        text = f"{limit} open files allow {allowed} client connections"
        return warning(
            Kind.LIMITS, where, text, f"{open_files.REMEDY}, or set limits.max_connections if this is enough"
        )
    if allowed >= wanted:
        return ok(Kind.LIMITS, where, f"{wanted:,}, which the limit of open files allows")
    text = f"{limit} open files allow {allowed} client connections, not {wanted}"
    return warning(Kind.LIMITS, where, text, f"{open_files.REMEDY}, or lower limits.max_connections")


def of_memory(settings: Settings, available_bytes: int) -> Finding:
    """Return whether the buffers and caches fit into memory, all full at once, in every worker."""
    fetch, limits = settings.fetch, settings.limits
    requests = 2 * limits.max_request_bytes_in_memory  # what is being uploaded is copied once
    caches = fetch.cache_bytes + fetch.cold_cache_bytes + fetch.replica_answer_bytes_max + limits.metadata_reuse_bytes
    each = _PROCESS_BYTES + requests + caches
    total, where = each * settings.workers, "limits.max_request_bytes_in_memory"
    needed = (
        f"with fetch.cache_bytes and the other buffers, the proxy needs {total // _MIB:,} MiB, in addition "
        f"to unread answers"
    )
    if settings.workers > 1:
        needed += f" in {settings.workers} workers"
    if total <= available_bytes:
        return ok(Kind.LIMITS, where, f"{needed}; {available_bytes // _MIB:,} MiB are available")
    text = f"{needed}, but this machine or container has {available_bytes // _MIB:,} MiB"
    return warning(Kind.LIMITS, where, text, "lower the setting, fetch.cache_bytes or workers, or add memory")


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory of the machine, or of the container if it has a limit.

    `root` is the root of the file system.
    """
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *container_limits(root)])
