"""The run: start everything, let it run through faults for the given time, and check the results."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from proxy.demo.load import Load, LoadOptions
from proxy.demo.stack import Stack
from proxy.demo.tally import CLASSIC, KINDS
from tests.retention_under_load.books import Problems
from tests.soak.errands import Errands
from tests.soak.faults import Faults
from tests.soak.flatness import Bound, Point, Verdict, judge
from tests.soak.group import PROTOCOLS, Group
from tests.soak.samples import STORES, Sampler
from tests.soak.shifts import ApplicationShifts, PipelineShifts
from tests.support.applications import CLIENTS
from tests.support.network import network_of
from tests.support.topics import replica_count

RETENTION_MS = 420_000
"""Retention of the load's topics, so that an hour's index is as large as that of the first minutes."""
SETTINGS: dict[str, Any] = {
    "diskless.append.commit.interval.ms": 500,
    "log.retention.check.interval.ms": 10_000,
    "garbage": {
        "interval_ms": 10_000,
        "grace_ms": 60_000,
        "orphan_sweep_interval_ms": 60_000,
        "orphan_age_ms": 300_000,
    },
    # These caches are full within minutes. A cache that fills for an hour would look like a leak, and could hide one. A
    # connection pool keeps as many connections as were needed at once, which is many while Redis or the storage is
    # slow.
    "fetch": {"cache_bytes": 16 << 20, "cold_cache_bytes": 16 << 20},
    "redis": {"pack_age_ms": 60_000, "pack_interval_ms": 10_000, "max_connections": 6},
    "storage": {"max_connections": 4},
    "limits": {"max_counted_topics": 50},
    "rollups": {"interval_ms": 60_000},
}
BROKER_PROPERTIES = {"log.retention.ms": str(RETENTION_MS)}
BOUNDS = (
    Bound("rss_mib", "MiB", 0.03, 8.0),
    Bound("tasks", "tasks", 0.10, 5.0, floor=True),
    # A process has these descriptors and two for each connection: docs/decisions/0054-descriptors-by-their-parts.md.
    Bound("own_descriptors", "file descriptors", 0.05, 8.0),
    Bound("connections", "connections", 0.10, 8.0, floor=True),
    Bound("healthz_ms", "ms", 0.25, 5.0),
    Bound("loop_lag_p99_ms", "ms", 0.25, 10.0, floor=True),
    Bound("produce_p50_ms", "ms", 0.25, 50.0),
    Bound("produce_p99_ms", "ms", 0.25, 250.0),
    Bound("fetch_p50_ms", "ms", 0.25, 50.0),
    Bound("fetch_p99_ms", "ms", 0.25, 250.0),
    Bound("redis_beside_index_mib", "MiB", 0.05, 1.0, by_process=False),
    Bound("redis_keys", "keys", 0.10, 200.0, by_process=False),
    Bound("index_rows", "rows", 0.20, 1_000.0, by_process=False),
    Bound("objects", "objects", 0.20, 1_000.0, by_process=False),
)
"""Figures that are judged."""
LOOK_SECONDS = 0.5
ROLLING = "all proxies are restarted, one by one"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run."""

    seconds: float
    seed: int
    records_per_second: float = 60.0
    """Records per second of the load that runs from beginning to end, on all topics together."""
    clients: tuple[str, ...] = CLIENTS
    """Client libraries of the applications, in turns."""
    shift_seconds: float = 240.0
    errand_pause_seconds: float = 8.0
    renew_seconds: float = 45.0
    """Seconds between new members of groups."""
    fault_seconds: float = 60.0
    """Minimum seconds between the starts of faults."""
    job_pause_seconds: float = 60.0
    """Seconds before each job of the pipeline; below 0, only an audit at the end runs."""
    sample_seconds: float = 10.0
    min_judged_seconds: float = 1_200.0
    """Minimum duration of a process's life for a verdict on it."""
    restarts: tuple[float, ...] = (0.10, 0.93)
    """Shares of the run at which all proxies are restarted one after the other; between them, proxies live long."""
    faults: tuple[str, ...] = ()
    """Faults to use; empty means all."""
    longer_seconds: float = 0.0
    """Maximum time beyond `seconds` to wait for each of `faults`, a new member, and an errand."""


@dataclass
class Report:
    """Results of the run."""

    seed: int
    options: dict[str, Any] = field(default_factory=dict)
    long_lived: list[str] = field(default_factory=list)
    """Proxies that are not killed between the rolling restarts; growth is judged for each of them."""
    began: str = ""
    seconds: float = 0.0
    load: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Results of the load that runs all the time, by kind."""
    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    applications: dict[str, int] = field(default_factory=dict)
    shifts: int = 0
    errands: dict[str, int] = field(default_factory=dict)
    errand_records: int = 0
    errands_repeated: dict[str, int] = field(default_factory=dict)
    pipeline: dict[str, Any] = field(default_factory=dict)
    happened: list[tuple[float, str, float]] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True if the run was not ended early, and every process that lived long enough was judged."""
        lasted = self.seconds >= self.options["seconds"]
        return lasted and (not self.unjudged or self.options["seconds"] < 2 * self.options["min_judged_seconds"])

    @property
    def unjudged(self) -> list[str]:
        """Return the figures without a verdict that should have one after an hour."""
        wanted = [*((name, "rss_mib") for name in self.long_lived or ("any proxy",)), (STORES, "redis_keys")]
        judged = {(one["of"].partition(" (process ")[0], one["figure"]) for one in self.verdicts}
        return [name for name, figure in wanted if (name, figure) not in judged]

    @property
    def flat(self) -> bool:
        """True if no judged figure grew."""
        return all(one["per_hour"] <= one["allowed"] for one in self.verdicts)

    @property
    def right(self) -> bool:
        """True if everything is well."""
        return self.problem_count == 0 and self.flat and self.complete


class Run:
    """A run on one stack that nobody else uses."""

    def __init__(self, stack: Stack, options: RunOptions, progress: Callable[[str], None]) -> None:
        self._stack, self._options, self._progress = stack, options, progress
        self._problems = Problems()
        self._report = Report(
            options.seed, asdict(options), began=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        )
        self._calm = threading.Lock()
        self._jobs_config = stack.directory / "config" / "jobs.yaml"
        self._began_s = time.monotonic()

    def run(self, ended: threading.Event) -> Report:
        """Run all of it; `ended` ends it early. Raises StackError if the stack or the load breaks."""
        # Jobs connect to the stores directly: faults of links must not affect them here.
        shutil.copy(self._stack.config_path(self._stack.options.racks[0]), self._jobs_config)
        self._progress("leading the proxies over links that can be broken")
        with network_of(self._stack) as network:
            racks = self._stack.options.racks
            bootstraps = {rack: self._stack.bootstrap(rack) for rack in racks}
            rate = self._options.records_per_second / len(racks) / len(KINDS)
            load_options = LoadOptions(
                replication_factor=replica_count(self._stack),
                producers_per_rack=1,
                records_per_second=rate,
                delivery_timeout_seconds=300.0,
                settle_seconds=300.0,
            )
            self._progress("starting the load")
            with Load(bootstraps, load_options) as load:
                topics = [load.topics[CLASSIC]]
                faults = Faults(self._stack, network, lambda: topics, self._calm, self._options.seed, self._problems)
                faults.only = self._options.faults
                self._run_meanwhile(load, faults, ended)
        self._report.problem_count, self._report.problems = self._problems.count, self._problems.reports
        return self._report

    def _run_meanwhile(self, load: Load, faults: Faults, ended: threading.Event) -> None:
        options, stack, problems, report = self._options, self._stack, self._problems, self._report
        sampler = Sampler(stack, options.sample_seconds, problems.report)
        applications = ApplicationShifts(
            stack, options.clients, options.seed, self._calm, problems, options.shift_seconds
        )
        pipeline = PipelineShifts(
            stack, self._jobs_config, options.seed, self._calm, problems, options.job_pause_seconds
        )
        errands = Errands(stack, options.seed, self._calm, problems, options.errand_pause_seconds)
        everywhere = [stack.bootstrap(rack) for rack in stack.options.racks]
        groups = [
            Group(protocol, everywhere, list(load.topics.values()), problems, options.seed) for protocol in PROTOCOLS
        ]
        report.long_lived = [name for name in stack.proxies if name != faults.victim]
        self._began_s = time.monotonic()
        workers = [sampler, applications, errands, *([pipeline] if options.job_pause_seconds >= 0 else [])]
        for worker in workers:
            worker.start()
        try:
            self._go_on(load, faults, groups, workers, ended)
        finally:
            self._progress("ending the errands and shifts")
            for worker in workers[1:]:
                worker.finish()
        self._progress("ending the load")
        tally = load.stop()
        self._progress("ending the groups")
        for group in groups:
            group.finish()
        self._progress("the last audit")
        pipeline.run_job("audit")
        sampler.finish()
        report.seconds = time.monotonic() - self._began_s
        for kind, topic in tally.topics.items():
            report.load[kind] = topic.as_json() | {"failed": topic.failed, "read": dict(topic.read)}
            if topic.failed:
                problems.report(f"{topic.topic}: {topic.failed} records failed: {dict(topic.errors)}")
        if not tally.right:
            for finding in tally.findings or ("the load was not right",):
                problems.report(finding)
        report.groups = {
            group.protocol: {"records": group.records, "read again": group.again, "rebalances": group.rebalances}
            for group in groups
        }
        report.applications, report.shifts = dict(applications.records), applications.done
        report.errands, report.errand_records = dict(errands.done), errands.records
        report.errands_repeated = dict(errands.repeated)
        report.pipeline = {
            "jobs": dict(pipeline.jobs),
            "acknowledged": pipeline.acknowledged,
            "read": pipeline.read,
            "audit": pipeline.audit,
        }
        report.happened = [tuple(one) for one in faults.happened]  # type: ignore[misc]
        report.samples = sampler.rows
        report.verdicts = [asdict(one) for one in verdicts(sampler.rows, options.min_judged_seconds)]

    def _go_on(
        self, load: Load, faults: Faults, groups: list[Group], workers: list[Any], ended: threading.Event
    ) -> None:
        options = self._options
        restarts = [share * options.seconds for share in options.restarts]
        next_fault_s, next_member_s = options.fault_seconds / 2, options.renew_seconds
        fault, renewal = _done(), _done()
        errands = workers[2]

        def goes_on(at_s: float) -> bool:
            lacking = {*options.faults} - {one.what for one in faults.happened} or not renewed or not errands.done
            return at_s < options.seconds + (options.longer_seconds if lacking else 0.0)

        renewed = False
        with ThreadPoolExecutor(2, "faults") as executor:  # both may take long, and neither waits for the other
            while goes_on(at_s := time.monotonic() - self._began_s) and not ended.is_set():
                load.check()
                if fault.done():
                    fault.result()
                    if restarts and at_s >= restarts[0]:
                        restarts.pop(0)
                        next_fault_s = max(next_fault_s, at_s + options.fault_seconds / 2)
                        fault = executor.submit(faults.do, ROLLING, faults.rolling_restart)
                    elif at_s >= next_fault_s:
                        next_fault_s = at_s + options.fault_seconds
                        fault = executor.submit(faults.next)
                if renewal.done() and at_s >= next_member_s:
                    renewal.result()
                    next_member_s = at_s + options.renew_seconds
                    renewal = executor.submit(lambda: [group.renew() for group in groups])
                    renewed = True
                self._progress(self._progress_line(at_s, load, faults, workers))
                ended.wait(LOOK_SECONDS)
        for one in (fault, renewal):
            one.result()

    def _progress_line(self, at_s: float, load: Load, faults: Faults, workers: list[Any]) -> str:
        sampler, applications, errands, *rest = workers
        tally = load.tally()
        produced = {kind: topic.produced for kind, topic in tally.topics.items()}
        resident = {row["of"]: row["rss_mib"] for row in sampler.rows if row["of"] != STORES}
        jobs = sum(rest[0].jobs.values()) if rest else 0
        return (
            f"{at_s:.0f} of {self._options.seconds:.0f} s: {produced}, {applications.done} shifts, "
            f"{sum(errands.done.values())} errands, {jobs} jobs, {len(faults.happened)} faults, MiB {resident}, "
            f"{self._problems.count} problems {self._problems.reports[-1:] or ''}"
        )


def _done() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(None)
    return future


def verdicts(rows: list[dict[str, Any]], min_seconds: float) -> Iterator[Verdict]:
    """Return a verdict on every figure, for each life of each process that was long enough."""
    lives: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        lives.setdefault((row["of"], row["process"]), []).append(row)
    for bound in BOUNDS:
        for (of, process), samples in lives.items():
            if bound.by_process == (of == STORES):
                continue
            points = [Point(row["at_s"], row[bound.figure]) for row in samples if bound.figure in row]
            name = of if of == STORES else f"{of} (process {process})"
            verdict = judge(bound, name, points, min_seconds)
            if verdict is not None:
                yield verdict


def soak(
    stack: Stack,
    options: RunOptions,
    progress: Callable[[str], None] = lambda _: None,
    ended: threading.Event | None = None,
) -> Report:
    """Run it on a stack with `SETTINGS`. Raises StackError."""
    return Run(stack, options, progress).run(ended or threading.Event())
