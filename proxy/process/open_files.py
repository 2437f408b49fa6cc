"""File descriptors: a client connection takes one for itself, one for its broker, and one for a near replica.

A process that runs out of them can neither accept nor connect. So the soft limit is raised to the hard one at the
start. (The soft limit protects `select` from high descriptors, and `select` is not used here.) The number of
connections is kept to what the limit allows. A client over `limits.max_connections` is refused with a log line; a
client without a descriptor would be dropped by the kernel or the event loop silently.
"""

from __future__ import annotations

import errno
import os
import resource

import structlog

from proxy.config import Settings
from proxy.process.shared_memory import PIECE_BYTES, PIECE_DESCRIPTORS

log = structlog.get_logger()

REMEDY = "raise the limit of open files (ulimit -n, LimitNOFILE of systemd, ulimits of compose)"
FEW = 1_000
"""Number of client connections below which the log warns if no number is set."""
MOST_WITHOUT_LIMIT = 1_000_000
"""Client connections if neither a setting nor the system says a number."""
_DESCRIPTORS_PER_CONNECTION = 2
_DESCRIPTORS_PER_NEAR_READ = 1
_DESCRIPTORS_OF_A_PROCESS = 64
"""Standard streams, event loop, admin port and its clients, service connections, files of the file storage."""


def connections_allowed(settings: Settings, open_files: int) -> int:
    """Return how many client connections this many open files allow; at least one."""
    own = _DESCRIPTORS_OF_A_PROCESS + settings.redis.max_connections + settings.storage.max_connections
    own += sum(len(listeners.ports) for listeners in settings.all_listeners)
    if settings.workers > 1:
        fetch, limits = settings.fetch, settings.limits
        shared_bytes = fetch.cache_bytes + fetch.cold_cache_bytes + limits.max_request_bytes_in_memory
        own += PIECE_DESCRIPTORS * (shared_bytes // PIECE_BYTES)
    each = _DESCRIPTORS_PER_CONNECTION + (_DESCRIPTORS_PER_NEAR_READ if settings.fetch.read_near_replicas else 0)
    return max(1, (open_files - own) // each)


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return soft  # some systems say "unlimited" and mean less
    return hard


def max_connections(settings: Settings) -> int:
    """Return `limits.max_connections`, or what the limit of open files allows; log a line if that is few."""
    wanted, open_files = settings.limits.max_connections, raise_limit()
    if open_files == resource.RLIM_INFINITY:
        return wanted or MOST_WITHOUT_LIMIT
    allowed = connections_allowed(settings, open_files)
    if not wanted and allowed < FEW:
        log.warning(
            "max_connections_low",
            reason=f"{open_files} open files allow {allowed} client connections",
            remedy=f"{REMEDY}, or set limits.max_connections if these are enough",
        )
    if allowed < wanted:
        log.warning(
            "max_connections_lowered",
            reason=f"{open_files} open files allow {allowed} client connections, not the {wanted} of "
            "limits.max_connections",
            remedy=f"{REMEDY}, or lower limits.max_connections",
        )
    return min(wanted or allowed, allowed)


def none_left() -> bool:
    """Return whether the process has no descriptor left.

    The event loop then accepts and drops new connections (libuv does so to avoid spinning) without any notice.
    """
    try:
        os.close(os.dup(2))
    except OSError as error:
        return are_exhausted(error)
    return False


def are_exhausted(error: BaseException | None) -> bool:
    """Return whether an error says that there are no more descriptors, of this process or of the machine."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
