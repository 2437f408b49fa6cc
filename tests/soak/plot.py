"""Small SVG plots of figures over time: a line per proxy, and marks for events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

Line = Sequence[tuple[float, float]]
"""Pairs of seconds and value."""

WIDTH, HEIGHT = 720, 200
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 30, 26
COLOURS = ("#0b7285", "#d9480f", "#5f3dc4", "#2b8a3e")
GAP_SECONDS = 95.0
"""Samples with a longer gap than this are not joined: nobody answered in between."""
STEPS = (1, 2, 5, 10)


def picture(title: str, unit: str, lines: Mapping[str, Line], marks: Sequence[float], seconds: float) -> str:
    """Return one plot; `marks` are the times of events."""
    most = max((value for line in lines.values() for _, value in line), default=1.0) or 1.0
    top = _round_up(most * 1.08)

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at_s / max(seconds, 1.0)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="16" font-size="13" fill="#212529">{escape(title)} [{escape(unit)}]</text>',
    ]
    for share in (0.0, 0.5, 1.0):
        value = top * share
        parts.append(
            f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#dee2e6"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#495057">{value:g}</text>'
        )
    parts += [
        f'<text x="{x(minute * 60):.1f}" y="{HEIGHT - 8}" text-anchor="middle" fill="#495057">{minute} min</text>'
        for minute in _minutes(seconds)
    ]
    if marks:
        there = "".join(f"M{x(at_s):.1f} {TOP}V{HEIGHT - BOTTOM}" for at_s in marks)
        parts.append(f'<path d="{there}" stroke="#868e96" stroke-dasharray="1 3"/>')
    for place, (name, line) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        parts.append(f'<path d="{_path(line, x, y)}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
        at = WIDTH - RIGHT - 110 * (len(lines) - place)
        parts.append(f'<text x="{at}" y="16" fill="{colour}">― {escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _path(line: Line, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    drawn, before = [], -GAP_SECONDS * 2
    for at_s, value in line:
        drawn.append(f"{'L' if at_s - before <= GAP_SECONDS else 'M'}{x(at_s):.1f} {y(value):.1f}")
        before = at_s
    return "".join(drawn)


def _round_up(value: float) -> float:
    power = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 0.1
    return next((step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8) if step * power >= value), 10 * power)


def _minutes(seconds: float) -> range:
    step = next((step for step in STEPS if seconds / 60 / step <= 8), STEPS[-1])
    return range(0, int(seconds // 60) + 1, step)
