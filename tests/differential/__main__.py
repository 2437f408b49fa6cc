"""Apply generated operations to a classic and a diskless topic on a stack of this machine, and compare the answers.

Ends with 0 if no difference was found. Otherwise it ends with 1 and prints the difference with the operations that lead
to it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from proxy.demo.stack import Stack
from tests.differential.planted import BUGS
from tests.differential.run import OPERATIONS_PER_CASE, Progress, run
from tests.differential.stack import listeners, options, plant

PROGRESS_SECONDS = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, help="of an earlier run, to do the same again")
    parser.add_argument("--case", type=int, help=f"do only this case of the seed: {OPERATIONS_PER_CASE} operations")
    parser.add_argument("--workers", type=int, default=4, help="cases at the same time")
    parser.add_argument("--planted", choices=BUGS, help="plant a bug in the proxy: the run has to find it")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    operations = OPERATIONS_PER_CASE if arguments.case is not None else arguments.operations
    say(f"seed {seed}")
    with Stack(options(), progress=lambda part: say(f"waiting for {part}")) as stack:
        asked = plant(stack, arguments.planted) if arguments.planted else listeners(stack)
        began = time.monotonic()
        outcome = run(
            asked,
            operations=operations,
            seed=seed,
            workers=1 if arguments.case is not None else arguments.workers,
            first_case=arguments.case or 0,
            progress=occasional_progress(began),
        )
    say(f"{outcome}\nin {time.monotonic() - began:.0f} s")
    return 0 if outcome.found is None else 1


def occasional_progress(began: float) -> Progress:
    printed_s = began

    def report(done: int, of: int) -> None:
        nonlocal printed_s
        now = time.monotonic()
        if now - printed_s >= PROGRESS_SECONDS:
            printed_s = now
            say(f"{done} of {of} operations in {now - began:.0f} s")

    return report


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
