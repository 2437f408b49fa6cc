"""Measure how long diskless topics are not served after faults: `python -m benchmarks.recovery`.

Three brokers and three proxies run on this machine, with all settings at their defaults. A record goes to a partition
of each shard every 100 ms. *Pause* is the longest time between two acknowledged records of a partition, for the
partition that waited longest:

- a proxy is restarted (SIGTERM), or killed and started again; the clients know no other proxy;
- Redis is killed and started again, with its data;
- Redis is emptied, when the journal has the records of one snapshot interval at 3,000 runs per second;
- Redis is emptied, and its only shard has a million runs: without a snapshot, and with one;
- the primary is killed, and Sentinels promote its replica. What is judged is the pause beyond the promotion, the median
  of several: it depends on when the kill meets a segment.

The runs of the journal are those of commits without objects. Writes `benchmarks/results/recovery.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import Event, Thread

import redis
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from proxy.config import load_settings
from proxy.coordinator.by_settings import coordinator_on, registry_on
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import PartitionRun, ProposedBatch
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import NEIGHBOURS
from proxy.demo.admin import get
from proxy.demo.stack import Stack, StackOptions
from proxy.demo.valkeys import SERVICE
from proxy.journal.opened import opened_journal

RESULTS = Path(__file__).parent / "results" / "recovery.json"
TOPIC = "recovery"
RACK = "rack-a"
SHARDS = 16
"""The default of `redis.shards`."""
RUNS_OF_AN_INTERVAL = 1_800_000
"""Runs of 10 minutes (`journal.snapshot_interval_ms`) at 3,000 per second."""
RUNS_OF_A_SHARD = 1_000_000
COMMITS_AT_ONCE = 8
EVERY_S = 0.1
WAIT_S = 300.0
SETTLE_S = 3.0
MOST_OUTAGE_S = 60.0
MOST_REBUILD_S = 30.0
MOST_BEYOND_PROMOTION_S = 1.0
OF_AN_INTERVAL = "Redis emptied, runs of a snapshot interval"
OF_A_SHARD = "rebuild of this shard"
OF_A_PROMOTION = "primary killed, its replica promoted"
PROMOTION_ALONE = "the promotion alone"
Say = Callable[[str], None]


class Probe:
    """Sends records to some partitions of the topic all the time, and knows when they were acknowledged."""

    def __init__(self, bootstrap: str, partitions: list[int]) -> None:
        self._partitions = partitions
        self._acknowledged: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self._ended = Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "max.in.flight.requests.per.connection": 32,
                "message.timeout.ms": int(WAIT_S * 1000),
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Probe:
        self._thread.start()
        self._wait_for(time.perf_counter())
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        next_s = time.perf_counter()
        while not self._ended.is_set():
            for number in self._partitions:
                self._producer.produce(
                    TOPIC, b"probe", partition=number, on_delivery=partial(self._note, number, time.perf_counter())
                )
            next_s += EVERY_S
            self._producer.poll(0)
            while (left_s := next_s - time.perf_counter()) > 0:
                self._producer.poll(left_s)

    def _note(self, number: int, sent_s: float, error: KafkaError | None, _: object) -> None:
        if error is None:
            self._acknowledged[number].append((time.perf_counter(), sent_s))

    def _wait_for(self, since_s: float) -> None:
        """Wait until each partition has acknowledged a record that was sent after this time."""
        until_s = time.perf_counter() + WAIT_S
        while not all(self._acknowledged[one] and self._acknowledged[one][-1][1] > since_s for one in self._partitions):
            if time.perf_counter() > until_s:
                raise RuntimeError(f"no record is acknowledged in {WAIT_S:.0f} s")
            time.sleep(0.01)

    def pause(self, fault: Callable[[], object]) -> float:
        """Let a fault happen, wait until all partitions are served again, and return the pause in seconds."""
        time.sleep(SETTLE_S)
        began_s = time.perf_counter()
        fault()
        self._wait_for(time.perf_counter())
        time.sleep(SETTLE_S)
        longest = 0.0
        for times in self._acknowledged.values():
            at = [acknowledged_s for acknowledged_s, _ in list(times)]
            gaps = (later - earlier for earlier, later in pairwise(at) if later > began_s)
            longest = max(longest, *gaps)
        return round(longest, 2)


@contextmanager
def running(options: StackOptions, say: Say) -> Iterator[Stack]:
    """Start a stack with the topic: `NEIGHBOURS` partitions in each shard."""
    with Stack(options, progress=lambda part: say(f"waiting for {part}")) as stack:
        admin = AdminClient({"bootstrap.servers": stack.bootstrap(RACK)})
        topic = NewTopic(TOPIC, SHARDS * NEIGHBOURS, 3, config={"diskless.enable": "true"})
        admin.create_topics([topic], request_timeout=60)[TOPIC].result(60)
        yield stack


async def fill(stack: Stack, runs: int, per_commit: int, say: Say) -> None:
    """Commit runs through the journal, one of each partition at a time; no record is behind them."""
    settings = load_settings(stack.config_path(RACK))
    client = await connect(settings.redis)
    try:
        async with opened_journal(settings) as journal:
            coordinator = coordinator_on(client, settings, journal)
            loaded = await registry_on(client, settings, coordinator).load()
            (topic_id,) = (topic.topic_id for topic in loaded.topics if topic.name == TOPIC)
            left = iter(range(runs // per_commit))
            commits = [_commit_all(coordinator, topic_id, left, per_commit, say) for _ in range(COMMITS_AT_ONCE)]
            await asyncio.gather(*commits)
    finally:
        await client.aclose()


async def _commit_all(
    coordinator: RedisCoordinator, topic_id: bytes, left: Iterator[int], per_commit: int, say: Say
) -> None:
    for number in left:
        batch = ProposedBatch(16_384, 10, int(time.time() * 1000), -1, -1, -1)
        proposed = [PartitionRun(topic_id, index, 1 + 16_384 * index, (batch,)) for index in range(per_commit)]
        answers = await coordinator.commit(os.urandom(16), proposed)
        if any(answer.error_code for answer in answers):
            raise RuntimeError(f"a commit was rejected: {answers[0]}")
        if number % 500 == 0:
            say(f"{number * per_commit:,} runs are committed")


def flush(stack: Stack) -> None:
    """Remove everything from Redis."""
    with redis.Redis.from_url(stack.redis.url, socket_timeout=60) as client:
        client.flushall()


def metric(stack: Stack, name: str) -> float:
    """Return the highest value that a proxy has."""
    values = [0.0]
    for proxy in stack.proxies.values():
        _, text = get(proxy.admin_url, "/metrics", 10)
        found = re.findall(rf"^diskless_proxy_{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        values += map(float, found)
    return max(values)


def restart_proxy(stack: Stack) -> None:
    """End a proxy as a deployment does, and start it again."""
    stack.terminate_proxy(RACK)
    stack.start_proxy(RACK)


def kill_proxy(stack: Stack) -> None:
    """Kill a proxy, and start it again."""
    stack.kill_proxy(RACK)
    stack.start_proxy(RACK)


def kill_redis(stack: Stack) -> None:
    """Kill Redis, and start it with its data."""
    stack.kill_redis()
    stack.start_redis()


def fail_over(stack: Stack) -> float:
    """Kill the primary; return the time until the Sentinels name its replica, in seconds."""
    began_s = time.perf_counter()
    replica = stack.redis.address.split(",")[1]
    sentinels = stack.redis.url.removeprefix("redis+sentinel://").partition("/")[0]
    stack.process("redis-1").kill()
    with redis.Redis.from_url(f"redis://{sentinels.split(',')[0]}", decode_responses=True) as sentinel:
        while ":".join(map(str, sentinel.sentinel_get_master_addr_by_name(SERVICE))) != replica:
            if time.perf_counter() > began_s + WAIT_S:
                raise RuntimeError("the replica is not promoted")
            time.sleep(0.01)
    return round(time.perf_counter() - began_s, 2)


def wait_for_snapshot(stack: Stack, say: Say) -> None:
    """Let a snapshot be taken now."""
    for name, proxy in stack.proxies.items():
        stack.configure_proxy(name, {"journal": {"snapshot_interval_ms": 1_000}})
        stack.terminate_proxy(name)
        stack.start_proxy(name)
        say(f"{proxy.process.name} is restarted, to take a snapshot")
    until_s = time.perf_counter() + WAIT_S
    while metric(stack, "snapshot_bytes") == 0 or metric(stack, "journal_records_after_snapshot") > 2_000:
        if time.perf_counter() > until_s:
            raise RuntimeError("no snapshot is taken")
        time.sleep(0.5)


def measure(arguments: argparse.Namespace, say: Say) -> dict[str, list[float]]:
    """Return the pauses, in seconds."""
    figures: dict[str, list[float]] = {}

    def note(name: str, *seconds: float) -> None:
        figures[name] = list(seconds)
        say(f"{name}: {', '.join(map(str, seconds))} s")

    each_shard = [shard * NEIGHBOURS for shard in range(SHARDS)]
    with running(StackOptions(), say) as stack, Probe(stack.bootstrap(RACK), each_shard) as probe:
        for name, fault in (
            ("no fault", lambda _: time.sleep(5)),
            ("proxy restarted", restart_proxy),
            ("proxy killed and started", kill_proxy),
            ("Redis killed and started", kill_redis),
        ):
            note(name, *(probe.pause(partial(fault, stack)) for _ in range(arguments.times)))
        asyncio.run(fill(stack, arguments.runs, SHARDS * NEIGHBOURS, say))
        note(OF_AN_INTERVAL, probe.pause(partial(flush, stack)))
        note("longest rebuild of a shard of these", metric(stack, "rebuild_seconds"))
    with (
        running(StackOptions(overrides={"redis": {"shards": 1}}), say) as stack,
        Probe(stack.bootstrap(RACK), [0]) as probe,
    ):
        asyncio.run(fill(stack, arguments.shard_runs, SHARDS * NEIGHBOURS, say))
        note("Redis emptied, one shard of many runs", probe.pause(partial(flush, stack)))
        note(OF_A_SHARD, metric(stack, "rebuild_seconds"))
        wait_for_snapshot(stack, say)
        note("Redis emptied, this shard has a snapshot", probe.pause(partial(flush, stack)))
    failovers = [_failover(each_shard, say) for _ in range(arguments.times)]
    note(OF_A_PROMOTION, *(pause for pause, _ in failovers))
    note(PROMOTION_ALONE, *(alone for _, alone in failovers))
    return figures


def _failover(partitions: list[int], say: Say) -> tuple[float, float]:
    """Kill a primary; return the pause and the promotion. It needs a stack of its own: the primary does not return."""
    with running(StackOptions(redis="sentinel"), say) as stack, Probe(stack.bootstrap(RACK), partitions) as probe:
        promoted = list[float]()
        pause = probe.pause(lambda: promoted.append(fail_over(stack)))
    return pause, promoted[0]


def judge(figures: dict[str, list[float]], arguments: argparse.Namespace) -> dict[str, dict[str, float | bool]]:
    """Return the required figures, and whether they are met."""
    failovers = zip(figures[OF_A_PROMOTION], figures[PROMOTION_ALONE], strict=True)
    found = {
        "rebuild_of_a_million_runs_s": (
            figures[OF_A_SHARD][0] * RUNS_OF_A_SHARD / arguments.shard_runs,
            MOST_REBUILD_S,
        ),
        "pause_after_a_wipe_s": (figures[OF_AN_INTERVAL][0], MOST_OUTAGE_S),
        "pause_beyond_a_promotion_s": (median(pause - alone for pause, alone in failovers), MOST_BEYOND_PROMOTION_S),
    }
    return {
        name: {"is": round(value, 2), "at_most": most, "kept": value <= most} for name, (value, most) in found.items()
    }


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3, help="restarts of each kind, and promotions")
    parser.add_argument("--runs", type=int, default=RUNS_OF_AN_INTERVAL, help="after the last snapshot")
    parser.add_argument("--shard-runs", type=int, default=RUNS_OF_A_SHARD, help="of a single shard")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    load = os.getloadavg()[0]
    figures = measure(arguments, lambda text: console.print(f"{datetime.now():%H:%M:%S} {text}"))
    goals = judge(figures, arguments)
    table = Table("fault", "seconds, median", "lowest", "highest")
    for name, values in figures.items():
        table.add_row(name, *(f"{value:.2f}" for value in (median(values), min(values), max(values))))
    Console().print(table, "goals:", goals)
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)],
        "arguments": vars(arguments),
        "seconds": figures,
        "goals": goals,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
