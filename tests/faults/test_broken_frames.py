"""Send broken frames of every API next to valid traffic: no crash, no leak, and no effect on other clients.

`BROKEN_FRAMES=100000` sets the number of frames, `BROKEN_FRAMES_SEED=…` repeats a run.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time

import pytest

from benchmarks.measure import memory_mib
from proxy.demo.ports import HOST
from proxy.demo.stack import Stack
from tests.batches import make_batch
from tests.support.broken_frames import Frames
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.metrics import Metrics
from tests.support.topics import CLASSIC, DISKLESS, KINDS, admin, create_topic
from tests.tiers import Tier

RACK = "rack-a"
COUNT = int(os.environ.get("BROKEN_FRAMES", "0"))
"""Number of frames; 0 for as many as the tier has time for."""
COUNT_OF_TIER = {Tier.QUICK: 400, Tier.FULL: 4_000}
SEED = int(os.environ.get("BROKEN_FRAMES_SEED", 3364285993)) or random.SystemRandom().randrange(2**32)
"""Seed; 0 for a random one. The default once ended the process with an array that claimed billions of elements."""
SENDERS = 48
ANSWER_SECONDS = 0.04
"""Seconds to wait for an answer. Later answers are ignored, because some requests ask to wait."""
MAX_GROWTH_MIB = 64


async def send_all(ports: list[int], frames: Frames, count: int) -> int:
    """Send each broken frame on its own connection; return how many connections the other side closed."""
    pairs = frames.broken_ones(count)
    chance = random.Random(SEED)
    ended = 0

    async def sender() -> None:
        nonlocal ended
        for before, broken in pairs:
            reader, writer = await asyncio.open_connection(HOST, chance.choice(ports))
            try:
                writer.write(before)
                writer.write(broken)
                async with asyncio.timeout(ANSWER_SECONDS):
                    while await reader.read(65_536):
                        pass
                ended += 1
            except ConnectionError:
                ended += 1
            except TimeoutError:
                pass
            finally:
                writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(SENDERS):
            group.create_task(sender())
    return ended


def at_rest(stack: Stack, connections: float, tasks: float) -> Metrics:
    """Return the proxy's figures once it has no more connections and tasks than given."""
    deadline = time.monotonic() + 60
    while True:
        metrics = Metrics(stack, RACK)
        if metrics.value("connections") <= connections and metrics.value("tasks") <= tasks:
            return metrics
        assert time.monotonic() < deadline, (metrics.value("connections"), metrics.value("tasks"), connections, tasks)
        time.sleep(0.2)


def faults(log: str) -> set[str]:
    """Return unexpected exceptions: the innermost place of each traceback, and its last line."""
    found = set()
    for traceback in log.split("Traceback")[1:]:
        places = re.findall(r"(proxy/\S+\.py:\d+)", traceback)
        errors = re.findall(r"^(?!\d{4}-)\w[\w.]*(?:Error|Exception|Timeout)\b.*", traceback, re.MULTILINE)
        found.add(f"{places[-1:]} {errors[:1]}")
    return found


@pytest.mark.timeout(3600 if COUNT > 20_000 else 240)
def test_broken_frames_next_to_valid_traffic(stack: Stack, pytestconfig: pytest.Config) -> None:
    count = COUNT or COUNT_OF_TIER[pytestconfig.getoption("tier")]
    print(f"BROKEN_FRAMES={count} BROKEN_FRAMES_SEED={SEED}")
    known = admin(stack).list_topics(timeout=30).topics
    for kind, name in zip(KINDS, ("broken-frames-a", "broken-frames-b"), strict=True):
        if name not in known:  # frames have these names, and a second try finds the topics of the first
            create_topic(stack, name, kind)
    log = stack.process(f"proxy-{RACK}").log
    logged = log.stat().st_size
    pid, frames = stack.pid(f"proxy-{RACK}"), Frames(SEED, bytes(make_batch()))
    first = stack.ports.bootstrap(0), stack.ports.broker_port_start(0)
    ports = [first[0], *(first[1] + node for node in stack.kafka.brokers)]
    time.sleep(1.0)  # wait until the client that made the topics is gone; those of earlier tests may be there
    before = Metrics(stack, RACK)
    with load_of(stack) as load:
        for kind in (CLASSIC, DISKLESS):
            wait_for_more(load, kind)
        before_mib, began_s = memory_mib(pid), time.monotonic()
        ended = asyncio.run(send_all(ports, frames, count))
        seconds = time.monotonic() - began_s
        for kind in (CLASSIC, DISKLESS):
            wait_for_more(load, kind)
        tally = load.stop()
    # Some may be the proxy's own by now; a leak would be thousands.
    after = at_rest(stack, before.value("connections"), before.value("tasks") + 5)
    after_mib = memory_mib(pid)
    # The valid traffic's own records stay in the cache, which has its own limit.
    cached_mib = (after.value("cache_bytes") - before.value("cache_bytes")) / 2**20
    rejected = after.value("protocol_errors_total") - before.value("protocol_errors_total")
    print(
        f"{ended} ended, {rejected:.0f} by the proxy; {seconds:.0f} s; {before_mib:.0f} to {after_mib:.0f} MiB, "
        f"{cached_mib:.0f} of it cached"
    )
    assert_right(tally)
    assert stack.pid(f"proxy-{RACK}") == pid
    assert stack.process(f"proxy-{RACK}").running
    assert rejected > count / 20
    assert after.value("held_request_bytes") == before.value("held_request_bytes") == 0
    assert after_mib - before_mib - cached_mib <= MAX_GROWTH_MIB
    assert not faults(log.read_text(errors="replace")[logged:])
