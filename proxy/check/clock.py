"""This machine's clock compared with those of the store and of object storage. Brokers don't report theirs."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.check.findings import Finding, Kind, error, ok, warning
from proxy.housekeeping.housekeeper import CLOCKS_APART_MS

TOLERATED_MS = 2_000


def check_clock(ahead_ms: Mapping[str, int], orphan_age_ms: int) -> list[Finding]:
    """Compare clocks; `ahead_ms` says how far other clocks are ahead of ours, by the setting that names their machine.

    Objects older than `garbage.orphan_age_ms`, by the storage's clock, without a known commit are deleted. Half of it
    is left for clocks that differ.
    """
    found = []
    remedy = "set the clocks by NTP: the ages of objects and records depend on them"
    for where, skew_ms in ahead_ms.items():
        way = "behind" if skew_ms > 0 else "ahead of"
        text = f"this machine's clock is {abs(skew_ms) / 1000:.1f} s {way} that of {where}"
        if abs(skew_ms) <= TOLERATED_MS:
            found.append(ok(Kind.CLOCK, where, f"this machine's clock agrees within {TOLERATED_MS / 1000:g} s"))
        elif abs(skew_ms) < min(CLOCKS_APART_MS, orphan_age_ms / 2):
            found.append(warning(Kind.CLOCK, where, text, remedy))
        else:
            found.append(error(Kind.CLOCK, where, text, remedy))
    return found
