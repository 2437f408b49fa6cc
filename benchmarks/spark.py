"""Run `make bench-spark`: the pipeline on Spark compared with its references, in one go.

Figures are ratios, pair by pair in one run, because everything shares the machine. Merging is compared with copying,
and `format("diskless")` with Spark's own Kafka source; compaction gets more keys than fit the executors' memory. Writes
`spark.json` and `spark.md` into `benchmarks/results`, and prints the table.
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

JSON = Path(__file__).parent / "results" / "spark.json"
PARTS = {"merge": spark_merge, "source": spark_source, "compact": spark_compact}
"""Parts, each with `measure(figures, rounds, megabytes)` and `table(spreads)`."""

Figures = dict[str, list[float]]


def main() -> None:
    """Parse the arguments, run, write the results and print them. Earlier results of parts that do not run stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=400, help="of records; twice as many once more")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="these only; all without")
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(JSON.read_text()) if JSON.exists() else {}
    for name in arguments.part or PARTS:
        results[name] = _measured(name, arguments.rounds, arguments.megabytes)
        JSON.parent.mkdir(exist_ok=True)
        JSON.write_text(json.dumps(results, indent=1) + "\n")
        JSON.with_suffix(".md").write_text(markdown(results))
    print(markdown(results))


def _measured(name: str, rounds: int, megabytes: int) -> dict[str, Any]:
    began = time.perf_counter()
    figures: Figures = defaultdict(list)
    PARTS[name].measure(figures, rounds, megabytes)
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "rounds": rounds,
        "megabytes": megabytes,
        "wall_seconds": round(time.perf_counter() - began, 1),
        "figures": {figure: spread(values) for figure, values in figures.items()},
    }


def markdown(results: dict[str, Any]) -> str:
    """Format everything of `spark.json` for a reader."""
    lines = ["# Benchmark of the pipeline", ""]
    for name in PARTS:
        if name in results:
            one = results[name]
            lines += [
                f"{one['when']}, {one['machine']['cpus']} CPUs shared by Spark, brokers, stores and proxies, "
                f"{one['rounds']} interleaved rounds of {one['megabytes']} MB, {one['wall_seconds']:.0f} s in all. "
                "Median (lowest–highest).",
                "",
                *PARTS[name].table(one["figures"]),
                "",
            ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
