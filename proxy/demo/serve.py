"""`diskless-proxy demo --serve`: the stack without load, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Event
from typing import Any

from rich.console import Console
from rich.table import Table

from proxy.demo import info, servers
from proxy.demo.errors import StackCancelled
from proxy.demo.jars import BROKERS
from proxy.demo.signals import end_signals
from proxy.demo.stack import Stack, StackOptions

WATCH_SECONDS = 0.2


def serve(options: StackOptions, info_path: Path | None, console: Console) -> None:
    """Start, report, wait for the signal, end. Raises StackError if the stack can't start.

    An information file exists as long as the stack is ready: at the default path of `demo hello`, and at `info_path`. A
    part that ends meanwhile is reported and left ended, because the user may have ended it to see what happens.
    """
    paths = {info.default_path()}
    info.clear(info.default_path())
    if info_path is not None:
        # A script that waits for this file waits for this stack.
        info_path.unlink(missing_ok=True)
        paths.add(info_path)
    described: dict[str, Any] = {}
    BROKERS.fetch(console.print)
    with end_signals() as signals:
        ended = signals.ended
        started = time.monotonic()
        console.print("Starting brokers, Redis-compatible server and proxies …")
        stack = Stack(options, cancelled=ended, progress=lambda part: console.print(f"  waiting for: {part}"))
        try:
            with stack:
                described = info.describe(stack)
                for path in paths:
                    info.write(path, described)
                _tell(stack, console, time.monotonic() - started)
                _watch(stack, ended, console)
                console.print("Ending …")
        except StackCancelled:
            console.print("Ended before everything was ready.")
        finally:
            for path in paths:
                info.withdraw(path, described)
    console.print("Ended." if options.directory is None else f"Ended; data and logs are in {stack.directory}.")


def _watch(stack: Stack, ended: Event, console: Console) -> None:
    alive = set(stack.processes)
    while not ended.wait(WATCH_SECONDS):
        for name in sorted(alive):
            process = stack.process(name)
            if not process.running:
                alive.discard(name)
                console.print(f"{name} ended (exit code {process.exit_code}); its log is {process.log}")


def _tell(stack: Stack, console: Console, seconds: float) -> None:
    for line in info.where_to_look(stack):
        console.print(line, soft_wrap=True, highlight=False)
    table = Table(title=f"Ready after {seconds:.1f} s", title_justify="left")
    for heading in ("part", "rack", "address", "process"):
        table.add_column(heading, overflow="fold")
    for node, rack in stack.kafka.racks.items():
        table.add_row(f"broker {node}", rack, stack.kafka.address(node), str(stack.pid(f"broker-{node}")))
    if stack.options.proxies:
        for rack, proxy in stack.proxies.items():
            table.add_row("proxy", rack, proxy.bootstrap, str(proxy.process.pid))
    addresses = stack.redis.address.split(",")
    for address, server in zip(addresses, stack.redis.processes[: len(addresses)], strict=True):
        table.add_row("Redis-compatible server", "", address, str(server.pid))
    if stack.s3:
        table.add_row("S3 server", "", stack.s3.endpoint_url, str(stack.s3.process.pid))
    console.print(table)
    console.print(f"WAL segments: {stack.storage_url}    logs: {stack.directory / 'logs'}", soft_wrap=True)
    if stack.options.proxies:
        _suggest(stack, console)
    console.print("Ctrl-C or SIGTERM ends it.")


def _suggest(stack: Stack, console: Console) -> None:
    rack, *_, other = stack.proxies
    program = f"{sys.executable} -m proxy" if sys.argv[0].endswith(".py") else sys.argv[0]
    tool = f"{servers.java()} -cp '{servers.kafka_class_path()}' org.apache.kafka.tools"
    here, there = stack.bootstrap(rack), stack.bootstrap(other)
    console.print("\nTry next (any Kafka client will do):")
    for what, command in (
        ("a diskless record from one rack to another", f"{program} demo hello"),
        (
            "create a diskless topic (by its name, see default_diskless_topics)",
            f"{tool}.TopicCommand --bootstrap-server {here} --create --topic diskless.first --partitions 3",
        ),
        (f"write to it in {rack}", f"{tool}.ConsoleProducer --bootstrap-server {here} --topic diskless.first"),
        (
            f"read it in {other}",
            f"{tool}.consumer.ConsoleConsumer --bootstrap-server {there} --topic diskless.first --from-beginning",
        ),
        ("see the proxy's figures", f"curl -s {stack.admin_url(rack)}/metrics"),
    ):
        console.print(f"  {what}:\n    {command}", soft_wrap=True, highlight=False)
