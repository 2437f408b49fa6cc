"""Measure the cost of idle connections: resident memory and CPU of a proxy that holds thousands of them.

Each one connects, requests Metadata as clients do, and then rests. The proxy's connections to the broker are part of
the cost. The first ones partly use memory that the start has left free, so the cost of further ones is reported too.
Writes `benchmarks/results/connections.json`.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import cpu_seconds, memory_mib
from benchmarks.raw_client import RawClient
from proxy.demo.stack import Stack, StackOptions

RESULTS = Path(__file__).parent / "results"
RACK = "rack-a"
WARM_UP = 100
SETTLE_SECONDS = 2.0
FURTHER = 1_000
"""With them, the default number of connections stays below what 20,000 open files allow."""


def main() -> None:
    """Parse the arguments, run, write the results and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle-seconds", type=float, default=10.0, help="for which CPU time is measured")
    arguments = parser.parse_args()
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    rounds = []
    for _ in range(arguments.rounds):
        # Each round has a new proxy: memory that an earlier round has freed would hide the memory of this one.
        with Stack(StackOptions(racks=(RACK,))) as stack:
            rounds.append(measure(stack, arguments.connections, arguments.idle_seconds))
            print(json.dumps(rounds[-1]), flush=True)
    result: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"python": platform.python_version()},
        "arguments": vars(arguments),
        "median": {name: round(median(one[name] for one in rounds), 3) for name in rounds[0]},
        "rounds": rounds,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "connections.json").write_text(json.dumps(result, indent=1) + "\n")
    first, further = (result["median"][f"kib_per_{which}connection"] for which in ("", "further_"))
    print(f"{first:.1f} KiB of resident memory for each idle connection, {further:.1f} KiB for each further one")


def measure(stack: Stack, connections: int, idle_seconds: float) -> dict[str, float]:
    """Hold `connections` connections to one broker's listener, then `FURTHER` ones, and close them."""
    pid = stack.pid(f"proxy-{RACK}")
    (address,) = RawClient(stack.bootstrap(RACK)).brokers().values()
    close_all(hold(address, WARM_UP))
    time.sleep(SETTLE_SECONDS)
    before_mib = memory_mib(pid)
    began = time.perf_counter()
    held = hold(address, connections)
    connect_seconds = time.perf_counter() - began
    time.sleep(SETTLE_SECONDS)
    during_mib, cpu = memory_mib(pid), cpu_seconds([pid])
    time.sleep(idle_seconds)
    idle_cpu = (cpu_seconds([pid]) - cpu) / idle_seconds
    held += hold(address, FURTHER)
    time.sleep(SETTLE_SECONDS)
    with_further_mib = memory_mib(pid)
    close_all(held)
    time.sleep(SETTLE_SECONDS)
    return {
        "kib_per_connection": (during_mib - before_mib) * 1024 / connections,
        "kib_per_further_connection": (with_further_mib - during_mib) * 1024 / FURTHER,
        "connections_per_second": connections / connect_seconds,
        "idle_cpu_share": idle_cpu,
        "before_mib": before_mib,
        "during_mib": during_mib,
        "with_further_mib": with_further_mib,
        "after_mib": memory_mib(pid),
    }


def hold(address: str, connections: int) -> list[RawClient]:
    """Open connections that have sent the first requests of every client."""
    held = []
    for _ in range(connections):
        held.append(RawClient(address))
        held[-1].brokers()
    return held


def close_all(held: list[RawClient]) -> None:
    """Close the connections."""
    for client in held:
        client.close()


if __name__ == "__main__":
    main()
