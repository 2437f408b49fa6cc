"""Draw the comparison with other proxies as an SVG: CPU a request, and requests a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LABELS, RIGHT = 760, 230, 140
"""Width of the picture, of the names on the left, and of the figures on the right, in pixels."""
ROW, GAP, TITLE = 24, 26, 30
STYLE = """
    .ground { fill: #ffffff; stroke: #d0d7de; }
    .bar { fill: #afb8c1; }
    .ours { fill: #0969da; }
    text { fill: #1f2328; font-size: 13px; }
    .title { font-weight: 600; font-size: 15px; }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #0d1117; stroke: #30363d; }
      .bar { fill: #484f58; }
      .ours { fill: #58a6ff; }
      text { fill: #e6edf3; }
    }
"""

Chart = tuple[str, str, Mapping[str, float]]
"""Title, unit, and values by name."""


def svg(charts: list[Chart], description: str) -> str:
    """Draw one group of bars below the other. A name that begins with "ours" has a colour of its own."""
    parts, y = [], 10
    for title, unit, values in charts:
        y += TITLE
        parts.append(f'<text class="title" x="14" y="{y - 8}">{escape(title)}</text>')
        longest = max(values.values(), default=1.0) or 1.0
        for name, value in values.items():
            width = (WIDTH - LABELS - RIGHT) * value / longest
            kind = "ours" if name.startswith("ours") else "bar"
            figure = f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
            parts.append(f'<text x="{LABELS - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>')
            parts.append(f'<rect class="{kind}" x="{LABELS}" y="{y + 4}" width="{width:.1f}" height="16" rx="2"/>')
            parts.append(f'<text x="{LABELS + width + 6:.1f}" y="{y + 16}">{figure} {escape(unit)}</text>')
            y += ROW
        y += GAP - TITLE // 2
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img" '
        "aria-labelledby=\"title desc\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', "
        'sans-serif">\n'
        f'  <title id="title">This proxy next to others</title>\n  <desc id="desc">{escape(description)}</desc>\n'
        f"  <style>{STYLE}  </style>\n"
        f'  <rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{y - 1}" rx="8"/>\n'
    )
    return head + "".join(f"  {part}\n" for part in parts) + "</svg>\n"


def charts(result: Mapping[str, Any], titles: Mapping[str, str]) -> list[Chart]:
    """Return the groups of bars: CPU a request, and requests a second, each with 64 connections and with one."""
    figures = result["figures"]

    def values(case: str, what: str) -> dict[str, float]:
        found = {title: figures.get(f"{case}: {name}: {what}") for name, title in titles.items()}
        return {title: figure["median"] for title, figure in found.items() if figure is not None}

    return [
        ("CPU of the proxy, small produces on 64 connections", "µs a request", values("64 connections", "cpu us")),
        ("CPU of the proxy, Produce v12 on 64 connections", "µs", values("64 connections, Produce v12", "cpu us")),
        ("CPU of the proxy, one produce at a time, 200 a second", "µs", values("lone, 200/s", "cpu us")),
        ("Throughput of small produces on 64 connections", "requests/s", values("64 connections", "requests/s")),
        ("Median latency of one produce at a time, 200 a second", "µs", values("lone, 200/s", "p50 us")),
    ]
