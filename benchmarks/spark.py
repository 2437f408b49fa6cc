"""`make bench-spark`: the pipeline on Spark beside what it is to be measured by; everything in one go.

Ratios, pair by pair in one run, as everything shares the machine: merging beside copying, `format("diskless")` beside
Spark's own Kafka source, compacting more keys than fit the executors' memory. Writes `spark.json` and `spark.md` into
`benchmarks/results`, and prints the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import spark_compact, spark_merge, spark_source
from benchmarks.measure import spread

RESULTS = Path(__file__).parent / "results"
PARTS = {"merge": spark_merge, "source": spark_source, "compact": spark_compact}
"""Each has `measure(figures, rounds, megabytes)` and `table(spreads)`."""

Figures = dict[str, list[float]]


def main() -> None:
    """Parse the arguments, run, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=400, help="of records; twice as many once more")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="these only; all without")
    arguments = parser.parse_args()
    began = time.perf_counter()
    parts = {name: PARTS[name] for name in arguments.part or PARTS}
    figures: Figures = defaultdict(list)
    for part in parts.values():
        part.measure(figures, arguments.rounds, arguments.megabytes)
    spreads = {name: spread(values) for name, values in figures.items()}
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "arguments": vars(arguments),
        "wall_seconds": round(time.perf_counter() - began, 1),
        "figures": spreads,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "spark.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result, [part.table(spreads) for part in parts.values()])
    (RESULTS / "spark.md").write_text(text)
    print(text)


def markdown(result: dict[str, Any], tables: list[list[str]]) -> str:
    """Everything of `spark.json` for a reader."""
    lines = [
        "# Benchmark of the pipeline",
        "",
        f"{result['when']}, {result['machine']['cpus']} CPUs shared by Spark, brokers, stores and proxies, "
        f"{result['arguments']['rounds']} interleaved rounds of {result['arguments']['megabytes']} MB, "
        f"{result['wall_seconds']:.0f} s in all. Median (lowest–highest).",
        "",
    ]
    for table in tables:
        lines += [*table, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
