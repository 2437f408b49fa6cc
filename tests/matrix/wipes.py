"""Redis is wiped again and again in mid-load, its contents or its process and directory in turn; then all is judged."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from proxy.judge.findings import Verdict
from proxy.judge.report import text
from proxy.verify.options import VerifyOptions
from proxy.verify.verification import Verification
from tests.matrix.cells import Mode
from tests.matrix.run import RATE, RECORDS_BETWEEN
from tests.matrix.world import World, can_mount, world_of


def wipe_under_load(
    world: World, history: Path, *, times: int, seconds: float, seed: int
) -> tuple[Verdict, list[dict[str, float]]]:
    """Wipe Redis; return the verdict, and the seconds until records were acknowledged, by kind of topic."""
    chance, waited = Random(seed), list[dict[str, float]]()
    with Verification(VerifyOptions(world.bootstrap, seed=seed, rate=RATE, producers=1), history) as running:
        began = time.monotonic()
        for number in range(times):
            running.wait_for(RECORDS_BETWEEN)
            time.sleep(max(0.0, began + seconds * (number + chance.random() / 2) / times - time.monotonic()))
            if number % 2:
                world.empty_redis()
            else:
                world.flush_redis()
            waited.append(world.wait_answers())
        running.wait_for(RECORDS_BETWEEN)
        return running.finish(), waited


def main() -> int:
    """Return exit code 1 if there was an anomaly."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.wipes", description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="how often Redis is wiped")
    parser.add_argument("--minutes", type=float, default=10.0, help="time in which that happens")
    parser.add_argument("--seed", type=int, default=1, help="of all that is chosen at random")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary).resolve()
        mounts = can_mount(directory / "mount")
        with world_of(Mode.REQUIRED, directory, mounts=mounts) as world:
            verdict, waited = wipe_under_load(
                world,
                directory / "history",
                times=arguments.times,
                seconds=arguments.minutes * 60,
                seed=arguments.seed,
            )
    print(text(verdict))
    for number, one in enumerate(waited, 1):
        print(f"wipe {number:2}: " + ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in one.items()))
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())
