"""Format the comparison with other proxies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TITLES = {
    "direct": "direct",
    "relay": "C relay",
    "lean": "lean Python",
    "kroxylicious": "Kroxylicious 0.12",
    "ours": "ours",
    "ours, next to a diskless topic": "ours, next to a diskless topic",
}
BULK = "bulk"


def markdown(result: dict[str, Any], cases: Sequence[str]) -> str:
    """Format everything of `peers.json` for a reader."""
    figures = result["figures"]
    lines = [
        "# Next to other proxies",
        "",
        f"{result['when']}, {result['machine']['cpus']} CPUs shared by load, broker and proxy, "
        f"{result['arguments']['rounds']} interleaved rounds of {result['arguments']['seconds']} s per run, "
        f"{result['wall_seconds']:.0f} s in all. Median (lowest–highest). CPU is that of the proxy's process.",
        "",
    ]
    for case in cases:
        bulk = case.startswith(BULK)
        rate, cpu, digits = ("MB/s", "cpu s/GB", 2) if bulk else ("requests/s", "cpu us", 1)
        lines += [
            f"| {case} | {rate} | CPU, {'s/GB' if bulk else 'µs a request'} | p50, µs | p99, µs |",
            "|---|---|---|---|---|",
        ]
        for name, title in TITLES.items():
            cells = [
                _cell(figures, f"{case}: {name}: {what}", places)
                for what, places in ((rate, 0), (cpu, digits), ("p50 us", 0), ("p99 us", 0))
            ]
            bold = "**" if title.startswith("ours") else ""
            lines.append(f"| {bold}{title}{bold} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(figures: dict[str, Any], name: str, places: int) -> str:
    if name not in figures:
        return "–"
    value = figures[name]
    return f"{value['median']:,.{places}f} ({value['min']:,.{places}f}–{value['max']:,.{places}f})"
