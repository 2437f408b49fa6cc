"""`diskless-proxy demo`: the stack, a load on it, what was seen."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from proxy.demo import info, report
from proxy.demo.errors import StackCancelled
from proxy.demo.jars import BROKERS
from proxy.demo.load import Load, LoadOptions
from proxy.demo.progress import Progress
from proxy.demo.signals import EndSignals, end_signals
from proxy.demo.stack import Stack, StackOptions
from proxy.demo.tally import KINDS, Tally
from proxy.demo.traffic import Traffic
from proxy.demo.valkeys import TITLES

LOOK_SECONDS = 0.5
CANCELLED_EXIT_CODE = 130


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command."""

    stack: StackOptions
    load: LoadOptions
    seconds: float
    json: bool
    info: Path | None


def demonstrate(options: DemoOptions) -> int:
    """Run the demo; the exit code: 0 if all is right. Raises StackError where the stack or the load can't run.

    Ctrl-C while the load runs ends it early, and what was sent is counted. Before that, or when it comes once more,
    nothing is counted, and the exit code is CANCELLED_EXIT_CODE.
    """
    console = Console(stderr=options.json)
    with end_signals() as signals:
        if options.info:
            options.info.unlink(missing_ok=True)
        try:
            tally, moved = _run(options, signals, console)
        except StackCancelled:
            console.print("Ended before everything was counted. Nothing is left running.")
            return CANCELLED_EXIT_CODE
        finally:
            if options.info:
                options.info.unlink(missing_ok=True)
    _where_next(options, console)
    if options.json:
        print(json.dumps(report.as_json(tally, moved)), flush=True)
    return 0 if tally.right else 1


def _run(options: DemoOptions, signals: EndSignals, console: Console) -> tuple[Tally, report.Moved]:
    began = time.monotonic()
    BROKERS.fetch(console.print)
    stack = Stack(options.stack, cancelled=signals.ended, progress=lambda part: console.print(f"  waiting for: {part}"))
    console.print(f"Starting three Kafka brokers in three racks, {TITLES[options.stack.redis]} and a proxy per rack …")
    with stack:
        console.print(f"Ready after {time.monotonic() - began:.0f} s.")
        for line in info.where_to_look(stack):
            console.print(line, soft_wrap=True, highlight=False)
        if options.info:
            info.write(options.info, info.describe(stack))
        traffic = Traffic({rack: stack.admin_url(rack) for rack in stack.proxies})
        with closing(Load({rack: stack.bootstrap(rack) for rack in stack.proxies}, options.load)) as load:
            _introduce(options, stack, console)
            load.start(signals.ended)
            tally = _watch(options, stack, load, traffic, signals, console)
        moved = _moved(traffic)
        console.print(report.table("What was seen", tally, moved, final=True))
        first, *details = report.verdict(tally, len(stack.proxies))
        console.print(first, style="bold green" if tally.right else "bold red", highlight=False)
        details += report.between_racks(tally, moved, options.load.replication_factor, options.load.record_bytes)
        for text in details:
            console.print(text, highlight=False)
    return tally, moved


def _introduce(options: DemoOptions, stack: Stack, console: Console) -> None:
    load = options.load
    console.print(
        f"In each of {len(stack.proxies)} racks, {load.producers_per_rack} producers and a consumer on a classic topic "
        f"and as many on a diskless one, all through their own rack's proxy. Each producer sends "
        f"{load.records_per_second:g} records of {load.record_bytes:,} bytes a second for {options.seconds:g} s; every "
        "consumer reads all of its topic. All records count; latencies only after "
        f"{load.warm_up_seconds:g} s, when the brokers have warmed up.",
        highlight=False,
    )
    for rack, proxy in stack.proxies.items():
        console.print(f"  proxy of {rack}: process {proxy.process.pid}", highlight=False)
    victim = next(iter(stack.proxies.values())).process.pid
    console.print(
        f"Break something meanwhile, if you like (for example: kill -9 {victim}{_store(stack)}). What is killed is "
        "started again, and the count still has to be right.\n",
        highlight=False,
    )


def _store(stack: Stack) -> str:
    """Return the process of the store's first server, if there are several."""
    first, *others = stack.redis.processes
    return f", or {first.pid}, a primary of the store" if others else ""


def _watch(
    options: DemoOptions, stack: Stack, load: Load, traffic: Traffic, signals: EndSignals, console: Console
) -> Tally:
    """The load's time, then its orderly end; the progress is shown, and what ends is started again,
    throughout."""
    progress = Progress(console, options.seconds)

    def look() -> None:
        _start_ended(stack, console)
        traffic.look()
        progress.show(load.tally(), _moved(traffic))

    with progress:
        end = time.monotonic() + options.seconds
        while time.monotonic() < end and not signals.ended.wait(LOOK_SECONDS):
            load.check()
            look()
        progress.phase = "waiting until all is read"
        with ThreadPoolExecutor(1) as stopper:
            stopping = stopper.submit(load.stop, signals.hurried)
            while not wait([stopping], LOOK_SECONDS).done:
                look()
    traffic.look()
    return stopping.result()


def _start_ended(stack: Stack, console: Console) -> None:
    """Restart ended processes at once, as a service manager would."""
    for name, process in stack.processes.items():
        if not process.running:
            console.print(f"{name} ended (exit code {process.exit_code}); starting it again")
            process.start()


def _moved(traffic: Traffic) -> report.Moved:
    return report.Moved(
        cross_rack_bytes={kind: traffic.cross_rack_bytes(kind) for kind in KINDS},
        record_bytes={kind: traffic.record_bytes(kind) for kind in KINDS},
        near_read_bytes=traffic.near_read_bytes(),
        coordination_bytes=traffic.coordination_bytes(),
    )


def _where_next(options: DemoOptions, console: Console) -> None:
    program = f"{sys.executable} -m proxy" if sys.argv[0].endswith(".py") else sys.argv[0]
    kept = options.stack.directory
    console.print("\nWhere to look next:")
    for what, where in (
        ("the same stack, left running, with addresses to point clients at", f"{program} demo --serve"),
        ("all logs, settings files and WAL segments", f"{kept}" if kept else f"{program} demo --dir DIR"),
        ("each proxy's figures, while it runs", "/metrics at the address of its admin page"),
        ("what it is, how it works, all settings", "README.md, docs/architecture.md, docs/configuration.md"),
    ):
        console.print(f"  {what}:\n    {where}", soft_wrap=True, highlight=False)
