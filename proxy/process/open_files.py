"""File descriptors: every client connection takes two, its own and the one to its broker; and one to a near replica.

A process that runs out of them can neither accept nor connect. So the soft limit is raised to the hard one at the start
(what it guards against, `select` with high descriptors, is not used here), and the number of connections is kept to
what it allows: a client over `limits.max_connections` is refused with a log line, where one without a descriptor would
be dropped by the kernel or the event loop without any.
"""

from __future__ import annotations

import errno
import os
import resource

import structlog

from proxy.config import Settings

log = structlog.get_logger()

REMEDY = "raise the limit of open files (ulimit -n, LimitNOFILE of systemd, ulimits of compose)"
FEW = 1_000
"""Client connections below which somebody should know, if nobody has set a number."""
MOST_WITHOUT_LIMIT = 1_000_000
"""Client connections if neither a setting nor the system says a number."""
_DESCRIPTORS_PER_CONNECTION = 2
_DESCRIPTORS_PER_NEAR_READ = 1
_DESCRIPTORS_OF_A_PROCESS = 64
"""Standard streams, event loop, admin port and its clients, service connections, files of the file storage."""


def connections_allowed(settings: Settings, open_files: int) -> int:
    """Return how many client connections so many open files allow; at least one."""
    own = _DESCRIPTORS_OF_A_PROCESS + settings.redis.max_connections + settings.storage.max_connections
    own += sum(len(listeners.ports) for listeners in settings.all_listeners)
    each = _DESCRIPTORS_PER_CONNECTION + (_DESCRIPTORS_PER_NEAR_READ if settings.fetch.read_near_replicas else 0)
    return max(1, (open_files - own) // each)


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return soft  # some systems say "unlimited" and mean less
    return hard


def max_connections(settings: Settings) -> int:
    """`limits.max_connections`, or what the limit of open files allows; a log line says so if that is few."""
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

    The event loop accepts and drops new connections then (libuv does, so as not to spin), and tells nobody.
    """
    try:
        os.close(os.dup(2))
    except OSError as error:
        return are_exhausted(error)
    return False


def are_exhausted(error: BaseException | None) -> bool:
    """Return whether an error says that there are no more descriptors, of this process or of the machine."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
