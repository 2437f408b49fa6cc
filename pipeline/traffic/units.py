"""Amounts as bills have them: gigabytes of a thousand million bytes, US dollars."""

from __future__ import annotations

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")


def decimal_text(size: float) -> str:
    """Return a number of bytes for people: `1.50 GB`."""
    unit = _BYTES[0]
    for unit in _BYTES:
        if abs(size) < 999.5 or unit == _BYTES[-1]:
            break
        size /= 1000
    digits = 0 if unit == "B" or abs(size) >= 99.95 else 1 if abs(size) >= 9.995 else 2
    return f"{size:,.{digits}f} {unit}"


def usd_text(usd: float) -> str:
    """Return dollars and cents; small amounts keep their digits, down to `about 0 USD` below a hundredth of a cent."""
    if usd and abs(usd) < 0.00995:
        return f"{usd:.2g} USD" if abs(usd) >= 0.0001 else "about 0 USD"
    return f"{usd:,.2f} USD"


def share_text(part: float, whole: float) -> str:
    """Percent, without claiming that something is nothing."""
    share = part / whole if whole else 0.0
    if 0 < share < 0.01:
        return "less than 1 %"
    return "more than 99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")
