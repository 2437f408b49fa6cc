"""The demo's results for a reader: as JSON, as a table, and in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from proxy.demo.tally import KINDS, Tally, TopicTally

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes, as the proxies counted them."""

    cross_rack_bytes: Mapping[str, int]
    """Bytes of records between a client and a broker or proxy of another rack, by kind of topic."""
    record_bytes: Mapping[str, int]
    """Bytes of records from and to clients, by kind of topic."""
    near_read_bytes: int
    """Bytes of classic topics that were read from a replica in the reader's rack instead of the leader in another."""
    coordination_bytes: int
    """Between proxies and the coordinator's store."""


def as_json(tally: Tally, moved: Moved) -> dict[str, Any]:
    """Return the demo's last line with `--json`."""
    return {
        **{kind: tally.topics[kind].as_json() for kind in KINDS},
        "cross_rack_bytes": {kind: moved.cross_rack_bytes[kind] for kind in KINDS},
    }


def table(title: str, tally: Tally, moved: Moved, *, final: bool) -> Table:
    """Return a table with a column for each kind of topic; `final` adds what is known only when everything is read."""
    shown = Table(title=title, title_justify="left", title_style="bold")
    shown.add_column("")
    for kind in KINDS:
        shown.add_column(f"{kind} topic", justify="right", min_width=16)
    topics = [tally.topics[kind] for kind in KINDS]

    def row(label: str, *cells: str, bad: bool = False) -> None:
        shown.add_row(label, *cells, style="red" if bad else None)

    row("records acknowledged", *(f"{topic.produced:,}" for topic in topics))
    for rack in topics[0].read:
        row(f"  read in {rack}", *(f"{topic.read[rack]:,}" for topic in topics))
    if any(topic.failed for topic in topics):
        row("  given up by their producer", *(f"{topic.failed:,}" for topic in topics))
    row("produce, p50 / p99", *(_latencies(topic.produce_p50_ms, topic.produce_p99_ms) for topic in topics))
    row("end to end, p50 / p99", *(_latencies(topic.e2e_p50_ms, topic.e2e_p99_ms) for topic in topics))
    row("record bytes from and to clients", *(megabytes(moved.record_bytes[kind]) for kind in KINDS))
    row("  of these, between racks", *(megabytes(moved.cross_rack_bytes[kind]) for kind in KINDS))
    if final:
        shown.add_section()
        for label, counts in (
            ("lost", [topic.lost for topic in topics]),
            ("duplicated", [topic.duplicated for topic in topics]),
            ("out of order", [topic.disordered for topic in topics]),
            ("different between racks", [topic.mismatched for topic in topics]),
        ):
            row(label, *(f"{number:,}" for number in counts), bad=any(counts))
    return shown


def line(seconds: float, tally: Tally, moved: Moved) -> str:
    """Return the progress in one line, for an output that is no terminal."""
    parts = []
    for kind in KINDS:
        topic = tally.topics[kind]
        read = " ".join(f"{rack} {number:,}" for rack, number in topic.read.items())
        latency = _latencies(topic.e2e_p50_ms, topic.e2e_p99_ms)
        between = megabytes(moved.cross_rack_bytes[kind])
        parts.append(
            f"{kind}: {topic.produced:,} acknowledged, read {read}; end to end {latency}; {between} between racks"
        )
    return f"{seconds:5.0f} s  " + "\n         ".join(parts)


def verdict(tally: Tally, racks: int) -> list[str]:
    """Return the outcome, in plain words; the first line says whether all is well."""
    topics = [tally.topics[kind] for kind in KINDS]
    produced = sum(topic.produced for topic in topics)
    if tally.right:
        said = [
            f"All is well: each of the {produced:,} acknowledged records was read in all {racks} racks exactly once, "
            "in order, at the same offset and with the same bytes."
        ]
    else:
        said = ["SOMETHING IS WRONG: " + "; ".join(_wrongs(kind, tally.topics[kind]) for kind in KINDS) + "."]
        said += [f"  {finding}" for finding in tally.findings]
    for kind, topic in zip(KINDS, topics, strict=True):
        if topic.failed:
            errors = ", ".join(f"{count:,} {name}" for name, count in sorted(topic.errors.items()))
            said.append(
                f"Producers gave up {topic.failed:,} records of the {kind} topic ({errors}); {topic.failed_but_read:,} "
                "of them were stored all the same. Never acknowledged, they count neither as produced nor as lost."
            )
    return said


def _wrongs(kind: str, topic: TopicTally) -> str:
    counts = {
        "lost": topic.lost,
        "duplicated": topic.duplicated,
        "out of order": topic.disordered,
        "not the same everywhere": topic.mismatched,
    }
    wrong = [f"{count:,} {name}" for name, count in counts.items() if count]
    if not topic.produced:
        return f"not one record was acknowledged on the {kind} topic"
    return f"of {topic.produced:,} records on the {kind} topic, {', '.join(wrong) or 'none is wrong'}"


def between_racks(tally: Tally, moved: Moved, replicas: int, record_bytes: int) -> list[str]:
    """Return what crossed racks, in plain words."""
    classic = tally.classic.produced * record_bytes
    share = _percent(moved.coordination_bytes, moved.record_bytes["diskless"])
    return [
        f"Classic topic: {megabytes(moved.cross_rack_bytes['classic'])} of records went between a client in one rack "
        f"and a broker in another, most of it to leaders elsewhere: {megabytes(moved.near_read_bytes)} were read from "
        "replicas in the reader's rack instead. On top of that, the brokers copied every record to "
        f"{replicas - 1} other racks: {megabytes(classic * (replicas - 1))} more.",
        f"Diskless topic: {megabytes(moved.cross_rack_bytes['diskless'])} of records went between racks, and the "
        "brokers had none to copy: proxies write to object storage and read from it, each in its own rack. Agreeing "
        f"on offsets took {megabytes(moved.coordination_bytes)} to and from Redis, {share} of the record bytes that "
        "clients wrote to the diskless topic and read from it.",
    ]


def megabytes(count: float) -> str:
    """Return bytes as megabytes, and small amounts not as nothing."""
    if count < MEGABYTE / 20:
        return f"{count / 1000:,.1f} kB" if count else "0 MB"
    return f"{count / MEGABYTE:,.1f} MB"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2g} %" if whole else "no share"


def _latencies(p50: float | None, p99: float | None) -> str:
    if p50 is None or p99 is None:
        return "–"
    return f"{_short(p50)} / {_short(p99)} ms"


def _short(milliseconds: float) -> str:
    return f"{milliseconds:.1f}" if milliseconds < 10 else f"{milliseconds:,.0f}"
