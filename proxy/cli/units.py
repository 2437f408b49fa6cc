"""Numbers as people read them in a table; `--json` has them whole."""

from __future__ import annotations

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
NOTHING = "–"


def size(count: float | None) -> str:
    """Bytes, in units of 1000: prices are by such gigabytes."""
    if count is None:
        return NOTHING
    value, unit = float(count), 0
    while value >= 999.95 and unit < len(_BYTES) - 1:
        value /= 1000
        unit += 1
    return f"{value:.0f} {_BYTES[unit]}" if unit == 0 else f"{value:.1f} {_BYTES[unit]}"


def rate(count: float | None) -> str:
    """Bytes a second."""
    return NOTHING if count is None else f"{size(count)}/s"


def milliseconds(value: float | None) -> str:
    """Return a latency."""
    if value is None:
        return NOTHING
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def dollars(value: float | None) -> str:
    """US dollars: to the cent from ten cents on, else to two figures."""
    if value is None:
        return NOTHING
    if value == 0 or value >= 0.095:
        return f"${value:,.2f}"
    return f"${value:.2g}" if value >= 0.0001 else "<$0.0001"


def duration(milliseconds_past: int | None) -> str:
    """How long ago, in its largest unit."""
    if milliseconds_past is None:
        return NOTHING
    seconds = max(0, milliseconds_past) / 1000
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
