"""This machine's clock against those of the store and of object storage. Brokers don't tell theirs."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.check.findings import Finding, Kind, error, ok, warning
from proxy.housekeeping.housekeeper import CLOCKS_APART_MS

TOLERATED_MS = 2_000


def check_clock(ahead_ms: Mapping[str, int], orphan_age_ms: int) -> list[Finding]:
    """`ahead_ms`: how far the others' clocks are ahead of ours, by the setting that names them.

    `garbage.orphan_age_ms`: objects of that age, by the storage's clock, that no commit is known of are deleted; half
    of it is left for clocks that differ.
    """
    found = []
    remedy = "set the clocks by NTP: ages of objects and records are reckoned by them"
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
