"""Positions of groups of both protocols, set, used and described by Kafka's tools, on both kinds of topics."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from proxy.demo.stack import Stack
from tests.conformance.jvm.test_console import CONSUMER, GROUP_PROTOCOLS, GROUPS, console_consumer, without_times
from tests.support.confluent import produce_to
from tests.support.java_tools import JavaTools
from tests.support.records import Sample
from tests.support.topics import CLASSIC, DISKLESS, delete_topic, new_topic
from tests.support.twice import Twice

RECORDS = 10
STEP_MS = 6 * 60_000
"""Milliseconds between two records, and the age of the last one: far more than the duration of the tests."""
BY_DURATION = "PT27M"
"""Duration for which the start is the fourth record from the end: this record is 24 minutes old, the one before it
30."""


@pytest.fixture(scope="module")
def twice(running_stack: Stack, tools: JavaTools) -> Twice:
    return Twice(running_stack, tools)


@pytest.fixture(scope="module")
def began_ms() -> int:
    """Return the timestamp of the first record."""
    return int(time.time() * 1000) - RECORDS * STEP_MS


@pytest.fixture(scope="module")
def names(running_stack: Stack, began_ms: int) -> Iterator[tuple[str, str]]:
    """Create a classic and a diskless topic: partition 0 has the records, in batches of four; partition 1 has none."""
    made = (new_topic(running_stack, "positions", CLASSIC, 2), new_topic(running_stack, "positions", DISKLESS, 2))
    sent = [Sample(b"key", f"record {number}".encode(), (), began_ms + number * STEP_MS) for number in range(RECORDS)]
    for topic in made:
        produce_to(running_stack.bootstrap("rack-a"), topic, {0: sent}, batch_num_messages=4, compression_type="lz4")
    yield made
    for topic in made:
        delete_topic(running_stack, topic)


def read(twice: Twice, names: tuple[str, str], protocol: str, group: str, count: int, *more: str) -> list[int]:
    """Return the offsets of the next records that a member of the group gets; its output is compared."""
    asked = ["--group", group, "--max-messages", str(count), "--command-property", f"group.protocol={protocol}", *more]
    arguments = [word for word in console_consumer(*asked) if word != "--from-beginning"]
    printed = twice.run(CONSUMER, arguments, names=names, clean=without_times)
    return sorted(int(found) for found in re.findall(r"Offset:(\d+)", printed.out))


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_a_group_is_set_back_and_forth(twice: Twice, names: tuple[str, str], began_ms: int, protocol: str) -> None:
    group = f"{{name}}-{protocol}"
    assert read(twice, names, protocol, group, 4, "--command-property", "auto.offset.reset=earliest") == [0, 1, 2, 3]
    shown = twice.run(GROUPS, ["--describe", "--group", group], names=names, clean=of_records)
    assert "<name> 0 4 10 6" in shown.out
    assert (
        f"{protocol.title()} Empty"
        in twice.run(GROUPS, ["--list", "--type", "--state"], names=names, clean=of_ours).out
    )
    between = datetime.fromtimestamp((began_ms + 4 * STEP_MS - STEP_MS // 2) / 1000, UTC)
    exactly = datetime.fromtimestamp((began_ms + 5 * STEP_MS) / 1000, UTC)
    steps = [
        (["--to-earliest"], 0),
        (["--to-datetime", f"{between:%Y-%m-%dT%H:%M:%S}.{between.microsecond // 1000:03}"], 4),
        (["--shift-by", "3"], 7),
        (["--shift-by", "-2"], 5),
        (["--to-current"], 5),
        (["--by-duration", BY_DURATION], 6),
        (["--by-duration", "PT0S"], RECORDS),
        (["--to-offset", "1"], 1),
        (["--to-offset", "99"], RECORDS),
        (["--shift-by", "-99"], 0),
        (["--to-latest"], RECORDS),
        (["--to-datetime", f"{exactly:%Y-%m-%dT%H:%M:%S}.{exactly.microsecond // 1000:03}"], 5),
    ]
    for position, offset in steps:
        arguments = ["--reset-offsets", "--group", group, "--topic", "{name}", *position, "--execute"]
        printed = twice.run(GROUPS, arguments, names=names, clean=without_times)
        assert re.search(rf"<name> 0 {offset}\b", printed.out), (position, printed)
        assert "<name> 1 0" in printed.out
    assert read(twice, names, protocol, group, 3) == [5, 6, 7]
    shown = twice.run(GROUPS, ["--describe", "--group", group], names=names, clean=of_records)
    assert "<name> 0 8 10 2" in shown.out


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_a_group_without_a_position_begins_a_duration_ago(twice: Twice, names: tuple[str, str], protocol: str) -> None:
    """KIP-1106: a group without a position starts at a given duration ago."""
    reset = ("--command-property", f"auto.offset.reset=by_duration:{BY_DURATION}")
    assert read(twice, names, protocol, f"{{name}}-{protocol}-ago", 4, *reset) == [6, 7, 8, 9]


def of_records(text: str) -> str:
    """Leave out the empty partition: a member that ends early may have had no position there yet."""
    return "\n".join(line for line in without_times(text).splitlines() if " <name> 1 0 0 0 " not in f" {line}")


def of_ours(text: str) -> str:
    """Keep only our topics' groups of a list of all groups."""
    return "\n".join(line for line in text.splitlines() if "<name>" in line)
