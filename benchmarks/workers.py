"""One proxy with several workers against one without: `python -m benchmarks.workers`.

One broker, one rack, diskless topics on S3. Prints a line for each run; `--json FILE` writes all runs. Memory is the
proportional share (PSS) of all processes of the proxy, because workers share memory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.measure import client, cpu_seconds
from benchmarks.run import DISKLESS_PRODUCERS, PARTITIONS, RACK, VALUE_BYTES, create, delete
from proxy.demo.stack import Stack, StackOptions
from tests.support.metrics import Metrics

WORKERS = (1, 2)
SMALL = {"closed": 16, "seconds": 8.0}
"""Producers that send their next record when the last one is acknowledged."""
CLIENTS = 4
"""Processes that produce, or consume, at the same time."""


def main() -> None:
    """Measure, and print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="of each producer and consumer")
    parser.add_argument("--storage", choices=("file", "s3"), default="s3")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    runs = []
    with Stack(StackOptions(storage=arguments.storage, racks=(RACK,))) as stack:
        for number in range(arguments.rounds):
            for workers in WORKERS:
                topic = f"workers-{number}-{workers}"
                runs.append(one_run(stack, topic, workers, arguments.megabytes))
                print(json.dumps(runs[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(runs, indent=1) + "\n")


def one_run(stack: Stack, topic: str, workers: int, megabytes: int) -> dict[str, Any]:
    """Produce little, produce much, and read all of it by a proxy that has nothing in memory."""
    sizes: dict[str, Any] = {"topic": topic, "partitions": PARTITIONS, "value_bytes": VALUE_BYTES}
    run: dict[str, Any] = {"workers": workers}
    _start(stack, workers)
    create(stack, topic, diskless=True)
    puts = Metrics(stack, RACK).value("uploads_total")
    small = client("produce_closed", address=stack.bootstrap(RACK), topic=topic, partitions=PARTITIONS, **SMALL)
    run["small_puts_s"] = round((Metrics(stack, RACK).value("uploads_total") - puts) / SMALL["seconds"], 2)
    run["small_records_s"] = round(small["count"] / SMALL["seconds"], 1)

    def produce() -> dict[str, float]:
        return client(
            "produce", bootstrap=stack.bootstrap(RACK), megabytes=megabytes // CLIENTS, **sizes, **DISKLESS_PRODUCERS
        )

    run |= {f"produce_{name}": value for name, value in _measured(stack, produce).items()}
    _start(stack, workers)

    def consume() -> dict[str, float]:
        return client("consume", bootstrap=stack.bootstrap(RACK), records=megabytes * 1_000_000 // VALUE_BYTES, **sizes)

    run |= {f"consume_{name}": value for name, value in _measured(stack, consume).items()}
    run["gets"] = int(Metrics(stack, RACK).value("storage_gets_total"))
    run["mib"] = round(sum(map(_shared_mib, _processes(stack))))
    delete(stack, topic)
    return run


def _measured(stack: Stack, job: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Run a job several times at once."""
    cpu = cpu_seconds(_processes(stack))
    with ThreadPoolExecutor(CLIENTS) as clients:
        done = [one.result() for one in [clients.submit(job) for _ in range(CLIENTS)]]
    gigabytes = sum(one["bytes"] for one in done) / 1e9
    return {
        "mb_s": round(sum(one["bytes"] / one["seconds"] for one in done) / 1e6, 1),
        "cpu_s_gb": round((cpu_seconds(_processes(stack)) - cpu) / gigabytes, 2),
    }


def _start(stack: Stack, workers: int) -> None:
    stack.kill_proxy(RACK)
    stack.configure_proxy(RACK, {"workers": workers})
    stack.start_proxy(RACK)


def _processes(stack: Stack) -> list[int]:
    """Return the proxy's process and its children."""
    parent = stack.pid(f"proxy-{RACK}")
    children: Iterable[str] = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [parent, *map(int, children)]


def _shared_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
