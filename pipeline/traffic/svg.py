"""The few shapes of SVG that a picture needs; numbers are pixels, colours are classes of a palette.

Each shape has its colour for paper. In dark mode a media query sets another palette; viewers without media queries
ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


class Svg:
    """A picture that grows shape by shape."""

    def __init__(self, width: int, height: int, title: str, light: Mapping[str, str], dark: Mapping[str, str]) -> None:
        """`light` and `dark`: colours by name, the same names."""
        self._light = light
        night = "".join(f".{name}{{fill:{colour}}}.line-{name}{{stroke:{colour}}}" for name, colour in dark.items())
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' role="img" font-family="{escape(FONT)}" font-size="13">',
            f"<title>{_safe(title)}</title>",
            f"<style>@media screen and (prefers-color-scheme: dark){{{night}}}</style>",
        ]
        self.rectangle(0, 0, width, height, "paper")

    def rectangle(self, x: float, y: float, width: float, height: float, colour: str, *, tip: str = "") -> None:
        """Draw a filled rectangle. `tip` is shown where the pointer rests."""
        inside = f"<title>{_safe(tip)}</title>" if tip else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="{self._light[colour]}" class="{colour}">{inside}</rect>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1.0) -> None:
        """A straight one."""
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{self._light[colour]}" '
            f'class="line-{colour}" stroke-width="{width}"/>'
        )

    def stripes(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Slanted lines over a rectangle, so that it differs from others without colours too."""
        step = 6.0
        start = x - height
        path = []
        while start < x + width:
            # From the lower edge up to the right, cut off at the rectangle's sides.
            x1, x2 = max(start, x), min(start + height, x + width)
            if x2 > x1:
                path.append(f"M{x1:.1f} {y + height - (x1 - start):.1f}L{x2:.1f} {y + height - (x2 - start):.1f}")
            start += step
        if path:
            self._parts.append(
                f'<path d="{"".join(path)}" stroke="{self._light[colour]}" class="line-{colour}" stroke-width="1" '
                'fill="none" pointer-events="none"/>'
            )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        colour: str = "ink",
        *,
        size: int = 13,
        bold: bool = False,
        anchor: str = "start",
    ) -> None:
        """On a line at `y`; `anchor`: whether `x` is its start, middle or end."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{self._light[colour]}" class="{colour}" font-size="{size}" '
            f'text-anchor="{anchor}"{weight}>{_safe(text)}</text>'
        )

    def render(self) -> str:
        """Return the whole file."""
        return "\n".join([*self._parts, "</svg>", ""])


def _safe(text: str) -> str:
    """Return the text as XML, without characters that XML can't hold."""
    return escape("".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text))
