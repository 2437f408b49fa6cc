"""The picture of a report: records by hour, between racks, and both cost reports.

The colours can be distinguished by people with colour blindness (Okabe and Ito), and what crossed racks is also
striped.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

from pipeline.traffic.costs import Item, crossings
from pipeline.traffic.span import Span
from pipeline.traffic.summary import Moved, Summary
from pipeline.traffic.svg import Svg
from pipeline.traffic.units import decimal_text, share_text, usd_text
from proxy.accounting.rollups.table import HOUR_MS

WIDTH, HEIGHT = 1080, 780
_LIGHT = {
    "paper": "#ffffff", "ink": "#1b1f24", "soft": "#59636e", "grid": "#d8dee4",
    "inside": "#0072b2", "near": "#009e73", "crossed": "#d55e00", "stripe": "#ffd9bf",
    "put": "#cc79a7", "get": "#e69f00", "coordination": "#7f7f7f", "replicated": "#8c510a", "fetched": "#b8860b",
    "cell": "#eef2f6",
}  # fmt: skip
_DARK = _LIGHT | {
    "paper": "#11151a", "ink": "#e8edf2", "soft": "#9aa6b2", "grid": "#2e3742",
    "inside": "#3a9bdc", "near": "#1fbf92", "crossed": "#f0802b", "stripe": "#7a3300",
    "put": "#dd93bd", "get": "#f0b429", "coordination": "#a0a8b0", "replicated": "#c98b45", "fetched": "#d8b04a",
    "cell": "#1b222a",
}  # fmt: skip
_LEFT, _RIGHT = 84, WIDTH - 40
_MAX_BARS = 96
_BAR_HOURS = (1, 2, 3, 4, 6, 8, 12, 24, 48, 96, 168, 336, 672)
_WAYS = (
    ("stayed in their rack", "inside"),
    ("read near, not from another rack's leader", "near"),
    ("crossed racks", "crossed"),
)
_LABEL_HOURS = (1, 2, 3, 6, 12, 24, 48, 96, 192, 384, 768)
_MAX_LABELS = 12
_MAX_RACKS = 6
_OTHERS = "(others)"
_ITEM_COLOURS = (
    ("records across", "crossed"),
    ("produced", "crossed"),
    ("fetched", "fetched"),
    ("replicated", "replicated"),
    ("PUT", "put"),
    ("GET", "get"),
    ("coordination", "coordination"),
)


def draw(summary: Summary) -> str:
    """Return an SVG file."""
    moved = summary.moved
    title = f"Traffic between racks, {summary.span.text()}"
    svg = Svg(WIDTH, HEIGHT, title, _LIGHT, _DARK)
    svg.text(40, 44, "Traffic between racks", size=22, bold=True)
    share = share_text(moved.outside_bytes, moved.bytes)
    svg.text(
        40, 68, f"{summary.span.text()}: {decimal_text(moved.bytes)} of records, of which {share} crossed racks", "soft"
    )
    _hours(svg, summary, top=104, height=230)
    _matrix(svg, summary, x=40, top=412)
    _bills(svg, summary, x=580, top=412)
    for line, text in enumerate(_notes(summary)):
        svg.text(40, HEIGHT - 36 + 17 * line, text, "soft", size=11)
    return svg.render()


def _hours(svg: Svg, summary: Summary, *, top: float, height: float) -> None:
    each = next((hours for hours in _BAR_HOURS if summary.span.hours <= hours * _MAX_BARS), _BAR_HOURS[-1])
    first = summary.span.from_ms // HOUR_MS
    bars: defaultdict[int, Moved] = defaultdict(Moved)
    for hour_ms, moved in summary.hours.items():
        number = (hour_ms // HOUR_MS - first) // each
        bars[number] = bars[number].plus(moved)
    count = max(1, -(-summary.span.hours // each))
    most = max((bar.bytes for bar in bars.values()), default=0)
    svg.text(40, top, f"Records per {'hour' if each == 1 else f'{each} hours'}", bold=True)
    _legend(svg, _RIGHT, top, _WAYS)
    bottom, base = top + height, top + 20
    step = _step(most)
    highest = max(step, -(-most // step) * step)
    for tick in range(0, highest + 1, step):
        y = bottom - (bottom - base) * tick / highest
        svg.line(_LEFT, y, _RIGHT, y, "grid")
        svg.text(_LEFT - 8, y + 4, _round(tick), "soft", size=11, anchor="end")
    width = (_RIGHT - _LEFT) / count
    for index, bar in sorted(bars.items()):
        x, y = _LEFT + index * width, bottom
        begins = datetime.fromtimestamp((first + index * each) * HOUR_MS / 1000, UTC)
        tip = f"{begins:%Y-%m-%d %H:%M}: {decimal_text(bar.bytes)}"
        inside = max(0, bar.bytes - bar.outside_bytes - bar.spared_bytes)
        sizes = inside, bar.spared_bytes, bar.outside_bytes
        for size, (name, colour) in zip(sizes, _WAYS, strict=True):
            tall = (bottom - base) * size / highest
            if tall > 0:
                y -= tall
                gap = min(1.5, width / 6)
                svg.rectangle(x + gap, y, width - 2 * gap, tall, colour, tip=f"{tip}, {decimal_text(size)} {name}")
                if colour == "crossed":
                    svg.stripes(x + gap, y, width - 2 * gap, tall, "stripe")
    svg.line(_LEFT, bottom, _RIGHT, bottom, "soft")
    _clock_labels(svg, summary.span, (_RIGHT - _LEFT) / (count * each), bottom + 18)


def _clock_labels(svg: Svg, span: Span, width: float, y: float) -> None:
    """Draw times below the bars, if an hour is that wide; days if there are many hours."""
    every = next((hours for hours in _LABEL_HOURS if span.hours <= hours * _MAX_LABELS), _LABEL_HOURS[-1])
    first = span.from_ms // HOUR_MS
    for hour in range(first + -first % every, first + span.hours, every):
        when = datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC)
        text = f"{when:%-d %b}" if every >= 24 or when.hour == 0 else f"{when:%H:%M}"
        x = _LEFT + (hour - first) * width
        svg.line(x, y - 18, x, y - 13, "soft")
        svg.text(x, y, text, "soft", size=11, anchor="middle")


def _matrix(svg: Svg, summary: Summary, *, x: float, top: float) -> None:
    cells: defaultdict[tuple[str, str], Moved] = defaultdict(Moved)
    for flow in summary.flows:
        way = flow.client_rack or "not known", flow.serving_rack or "not known"
        outside = flow.bytes if crossings(flow) else 0
        cells[way] = cells[way].plus(Moved(flow.bytes, outside_bytes=outside))
    clients, servers = (_largest(cells, side) for side in (0, 1))
    shown: defaultdict[tuple[str, str], Moved] = defaultdict(Moved)
    for (client, server), moved in cells.items():
        way = client if client in clients else _OTHERS, server if server in servers else _OTHERS
        shown[way] = shown[way].plus(moved)
    svg.text(x, top, "Between which racks", bold=True)
    svg.text(x, top + 20, "clients in (rows) and served by (columns); produced and fetched", "soft", size=11)
    most = max((moved.bytes for moved in shown.values()), default=1) or 1
    left, first = x + 96, top + 52
    width = min(110.0, 390 / max(1, len(servers)))
    height = min(46.0, 220 / max(1, len(clients)))
    for column, server in enumerate(servers):
        svg.text(left + (column + 0.5) * width, first - 8, _short(server, width), "soft", size=12, anchor="middle")
    for row, client in enumerate(clients):
        y = first + row * height
        svg.text(left - 10, y + height / 2 + 4, _short(client, 86), "soft", size=12, anchor="end")
        for column, server in enumerate(servers):
            cell_x, moved = left + column * width, shown.get((client, server), Moved())
            svg.rectangle(cell_x + 1, y + 1, width - 2, height - 2, "cell")
            if not moved.bytes:
                continue
            crossed = 2 * moved.outside_bytes > moved.bytes
            # The bar under the number is as long as the cell's share of the largest one.
            wide = max(2.0, (width - 2) * moved.bytes / most)
            tip = (
                f"{client} and {server}: {decimal_text(moved.bytes)}, {decimal_text(moved.outside_bytes)} crossed racks"
            )
            svg.rectangle(cell_x + 1, y + height - 11, wide, 10, "crossed" if crossed else "inside", tip=tip)
            if crossed:
                svg.stripes(cell_x + 1, y + height - 11, wide, 10, "stripe")
            svg.text(cell_x + width / 2, y + height / 2 + 1, decimal_text(moved.bytes), size=12, anchor="middle")


def _bills(svg: Svg, summary: Summary, *, x: float, top: float) -> None:
    bill = summary.bill
    without, paid = bill.total_usd("without_proxies"), bill.total_usd("with_proxies")
    saved = bill.saved_usd()
    svg.text(x, top, "What it cost", bold=True)
    word = f"saved {usd_text(saved)}" if saved >= 0 else f"{usd_text(-saved)} more than without"
    percent = f" ({share_text(saved, without)})" if saved > 0 and without else ""
    svg.text(_RIGHT, top, word + percent, "near" if saved >= 0 else "crossed", bold=True, anchor="end")
    most = max(without, paid) or 1.0
    y = top + 26
    for case, label, total in (
        ("with_proxies", "with the proxies, measured", paid),
        ("without_proxies", "without them, by the model", without),
    ):
        svg.text(x, y, label, "soft", size=12)
        svg.text(_RIGHT, y, usd_text(total), size=12, bold=True, anchor="end")
        bar_x = x
        items = [item for item in bill.items if item.case == case and item.usd > 0]
        svg.rectangle(x, y + 8, _RIGHT - x, 16, "cell")
        for item in items:
            wide = (_RIGHT - x) * item.usd / most
            svg.rectangle(bar_x, y + 8, wide, 16, _colour(item), tip=f"{item.kind}: {item.what}, {usd_text(item.usd)}")
            if _colour(item) == "crossed":
                svg.stripes(bar_x, y + 8, wide, 16, "stripe")
            bar_x += wide
        y += 42
        for item in items:
            svg.rectangle(x, y - 9, 10, 10, _colour(item))
            if _colour(item) == "crossed":
                svg.stripes(x, y - 9, 10, 10, "stripe")
            amount = f"{item.requests:,} requests" if item.requests else decimal_text(item.bytes)
            svg.text(x + 18, y, f"{item.kind}: {item.what} ({amount})", size=12)
            svg.text(_RIGHT, y, usd_text(item.usd), size=12, anchor="end")
            y += 19
        y += 16


def _legend(svg: Svg, right: float, y: float, entries: tuple[tuple[str, str], ...]) -> None:
    x = right
    for text, colour in reversed(entries):
        x -= 6.6 * len(text)
        svg.text(x, y, text, "soft", size=12)
        svg.rectangle(x - 16, y - 10, 11, 11, colour)
        if colour == "crossed":
            svg.stripes(x - 16, y - 10, 11, 11, "stripe")
        x -= 34


def _notes(summary: Summary) -> tuple[str, str]:
    prices, model = summary.prices, summary.model
    reads = "in their own rack" if model.follower_fetching else "from leaders"
    return (
        f"USD {prices.cross_rack_usd_per_gb:g} per GB between racks, {prices.put_usd_per_thousand:g} per 1,000 PUTs, "
        f"{prices.get_usd_per_thousand:g} per 1,000 GETs.",
        f"The model: diskless topics as classic ones, replication factor {model.replication_factor}, leaders spread "
        f"over {model.racks} racks, consumers read {reads}; classic ones as they are, all reads from leaders.",
    )


def _colour(item: Item) -> str:
    return next(colour for begin, colour in _ITEM_COLOURS if item.what.startswith(begin))


def _largest(cells: dict[tuple[str, str], Moved], side: int) -> list[str]:
    """Racks of one side by name; beyond a number the smallest as one."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for way, moved in cells.items():
        sizes[way[side]] += moved.bytes
    if len(sizes) <= _MAX_RACKS:
        return sorted(sizes)
    return [*sorted(sorted(sizes, key=lambda rack: -sizes[rack])[: _MAX_RACKS - 1]), _OTHERS]


def _step(most: int) -> int:
    """Between the lines of the scale: 1, 2 or 5 times a power of ten, some five of them."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if most <= 5 * step * factor:
                return step * factor
        step *= 10


def _round(size: int) -> str:
    """Return a number on a scale, without digits that say nothing."""
    return decimal_text(size).replace(".00 ", " ").replace(".0 ", " ") if size else "0"


def _short(text: str, width: float) -> str:
    most = max(4, int(width / 6.5))
    return text if len(text) <= most else f"{text[: most - 1]}…"
