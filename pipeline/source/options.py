"""The options of `format("diskless")`, with the names and meanings of Spark's Kafka source (`KafkaSourceProvider`).

Options of that source that this one can't support (all of `kafka.*`) are rejected, as are all unknown options: an
option that is ignored silently is a trap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.source import option_values as values
from pipeline.source.errors import OptionError
from pipeline.source.limits import EARLIEST, LATEST, AllAt, EachAt, EachSince, Limit, Since

DEFAULT_SPLIT_BYTES = 67_108_864
"""Approximate maximum that one task reads: worth a task of its own, and small enough to be repeated."""

CONFIG = "config"
SUBSCRIBE, ASSIGN, PATTERN = "subscribe", "assign", "subscribePattern"
STARTING_OFFSETS, ENDING_OFFSETS = "startingOffsets", "endingOffsets"
STARTING_TIMESTAMP, ENDING_TIMESTAMP = "startingTimestamp", "endingTimestamp"
STARTING_BY_TIMESTAMP, ENDING_BY_TIMESTAMP = "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"
STRATEGY = "startingOffsetsByTimestampStrategy"
MAX_PER_TRIGGER, MIN_PER_TRIGGER, MAX_DELAY = "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"
MIN_PARTITIONS, MAX_RECORDS = "minPartitions", "maxRecordsPerPartition"
FAIL_ON_DATA_LOSS, INCLUDE_HEADERS = "failOnDataLoss", "includeHeaders"
SPLIT_BYTES, PUSH_FILTERS = "splitBytes", "pushFilters"
ISOLATION = "isolation"
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"

_OF_BATCHES = (ENDING_OFFSETS, ENDING_TIMESTAMP, ENDING_BY_TIMESTAMP, PUSH_FILTERS)
_OF_STREAMS = (MAX_PER_TRIGGER, MIN_PER_TRIGGER, MAX_DELAY)
NAMES = (
    *(CONFIG, SUBSCRIBE, ASSIGN, PATTERN, STARTING_OFFSETS, STARTING_TIMESTAMP, STARTING_BY_TIMESTAMP, STRATEGY),
    *_OF_BATCHES,
    *_OF_STREAMS,
    *(MIN_PARTITIONS, MAX_RECORDS, FAIL_ON_DATA_LOSS, INCLUDE_HEADERS, SPLIT_BYTES, ISOLATION),
)
"""All options, as they are written; Spark compares them without regard to case."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The topics to read: one of the three is set."""

    names: tuple[str, ...] = ()
    """`subscribe`: all partitions of these topics, also those to come."""
    partitions: Mapping[str, tuple[int, ...]] | None = None
    """`assign`: just these partitions, by topic."""
    pattern: re.Pattern[str] | None = None
    """`subscribePattern`: topics whose whole name matches, also those to come."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options, read and checked."""

    config: str
    """Path of the settings file, which the driver has to be able to read."""
    selection: Selection
    starting: Limit
    ending: Limit
    latest_where_none_matches: bool
    """`startingOffsetsByTimestampStrategy`: if no record is that new, begin at the end instead of failing."""
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    split_bytes: int
    push_filters: bool
    """Read no more than Spark's filters ask for.

    Off by default: Spark 4.2 keeps one plan of a Python source for all queries of one `load`, that of the filters that
    were handed down last, so a DataFrame that is used with other filters, too, or with none, gets wrong answers.
    """
    committed: bool
    """`isolation` is `read_committed`: read up to the last stable offset, without records of aborted transactions."""


def parse_options(given: Mapping[str, str], *, kind: Literal["batch", "stream", "any"] = "any") -> SourceOptions:
    """`given`: as Spark hands them over, names in any case. `kind`: of query; `any` before that is known.

    Raises OptionError.
    """
    options = _known(given)
    _check_kind(options, kind)
    selection = _selection(options)
    starting = _starting(options, kind)
    ending = _limit(options, ENDING_TIMESTAMP, ENDING_BY_TIMESTAMP, ENDING_OFFSETS) or AllAt(LATEST)
    _check_order(starting, ending)
    least, most = values.positive(options, MIN_PER_TRIGGER), values.positive(options, MAX_PER_TRIGGER)
    if least is not None and most is not None and least > most:
        raise OptionError(f"{MIN_PER_TRIGGER} {least} is more than {MAX_PER_TRIGGER} {most}; swap or drop one of them")
    if not options.get(CONFIG):
        raise OptionError(f"option {CONFIG!r} is missing: set it to the path of the proxy's settings file")
    return SourceOptions(
        config=options[CONFIG],
        selection=selection,
        starting=starting,
        ending=ending,
        latest_where_none_matches=values.one_of(options, STRATEGY, ("error", "latest")) == "latest",
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=values.span_ms(options, MAX_DELAY, "15m"),
        min_partitions=values.positive(options, MIN_PARTITIONS),
        max_records_per_partition=values.positive(options, MAX_RECORDS),
        fail_on_data_loss=values.truth(options, FAIL_ON_DATA_LOSS, default=True),
        include_headers=values.truth(options, INCLUDE_HEADERS, default=False),
        split_bytes=values.positive(options, SPLIT_BYTES) or DEFAULT_SPLIT_BYTES,
        push_filters=values.truth(options, PUSH_FILTERS, default=False),
        committed=values.one_of(options, ISOLATION, (READ_UNCOMMITTED, READ_COMMITTED)) == READ_COMMITTED,
    )


def _known(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options under the names that this file has for them."""
    by_lower = {name.lower(): name for name in NAMES}
    options: dict[str, str] = {}
    for name in given:
        lower = name.lower()
        if lower.startswith("kafka."):
            raise OptionError(
                f'option {name!r} is of no use to format("diskless"): no broker is asked; drop it, or read by '
                'format("kafka") through the proxy'
            )
        if lower not in by_lower:
            raise OptionError(f'format("diskless") has no option {name!r}; it has {", ".join(NAMES)}')
        options[by_lower[lower]] = given[name]
    return options


def _check_kind(options: Mapping[str, str], kind: str) -> None:
    if kind == "stream":
        for name in _OF_BATCHES:
            if name in options:
                raise OptionError(
                    f"option {name!r} is for batch queries: a stream has no end, and gets no filters; drop it"
                )
    if kind == "batch":
        for name in _OF_STREAMS:
            if name in options:
                raise OptionError(f"a batch query has no triggers: option {name!r} is for streams; drop it")


def _selection(options: Mapping[str, str]) -> Selection:
    chosen = [name for name in (SUBSCRIBE, ASSIGN, PATTERN) if name in options]
    if len(chosen) != 1:
        given = f"{' and '.join(chosen)} are given" if chosen else "none is given"
        raise OptionError(f"exactly one of the options {SUBSCRIBE}, {ASSIGN} and {PATTERN} says what is read; {given}")
    if SUBSCRIBE in options:
        names = tuple(dict.fromkeys(name.strip() for name in options[SUBSCRIBE].split(",") if name.strip()))
        if not names:
            raise OptionError(f"option {SUBSCRIBE!r} names no topic; write topics with commas between them")
        return Selection(names=names)
    if ASSIGN in options:
        return Selection(partitions=values.assigned(options, ASSIGN))
    pattern = options[PATTERN].strip()
    try:
        if pattern:
            return Selection(pattern=re.compile(pattern))
    except re.error as error:
        raise OptionError(f"option {PATTERN!r} is not a regular expression: {error}; it is {pattern!r}") from error
    raise OptionError(f"option {PATTERN!r} is empty; write a regular expression for whole names of topics")


def _starting(options: Mapping[str, str], kind: str) -> Limit:
    starting = _limit(options, STARTING_TIMESTAMP, STARTING_BY_TIMESTAMP, STARTING_OFFSETS)
    if starting is None:
        return AllAt(LATEST if kind == "stream" else EARLIEST)
    if kind == "batch":
        if starting == AllAt(LATEST):
            raise OptionError(f"{STARTING_OFFSETS} can't be latest in a batch query: nothing would be read")
        if isinstance(starting, EachAt) and LATEST in starting.of.values():
            raise OptionError(f"{STARTING_OFFSETS} can't be latest (-1) for a partition in a batch query")
    return starting


def _limit(options: Mapping[str, str], timestamp: str, by_timestamp: str, offsets: str) -> Limit | None:
    """Return the one that counts, in the order of Spark's Kafka source: one time, times by partition, offsets."""
    if timestamp in options:
        return Since(values.not_negative(options, timestamp))
    if by_timestamp in options:
        times = values.by_partition(options, by_timestamp)
        if min(times.values()) < 0:
            raise OptionError(f"option {by_timestamp!r} has a negative time; write milliseconds since 1970")
        return EachSince(times)
    if offsets not in options:
        return None
    text = options[offsets].strip()
    if text.lower() in ("earliest", "latest"):
        limit: Limit = AllAt(EARLIEST if text.lower() == "earliest" else LATEST)
    else:
        limit = EachAt(values.by_partition(options, offsets))
        if min(limit.of.values()) < EARLIEST:
            raise OptionError(f"option {offsets!r} has an offset below {EARLIEST}, which means earliest; -1 is latest")
    if offsets == ENDING_OFFSETS and (
        limit == AllAt(EARLIEST) or (isinstance(limit, EachAt) and EARLIEST in limit.of.values())
    ):
        raise OptionError(f"{ENDING_OFFSETS} can't be earliest (-2): nothing would be read")
    return limit


def _check_order(starting: Limit, ending: Limit) -> None:
    if isinstance(starting, Since) and isinstance(ending, Since) and starting.timestamp_ms > ending.timestamp_ms:
        raise OptionError(
            f"{STARTING_TIMESTAMP} {starting.timestamp_ms} is after {ENDING_TIMESTAMP} {ending.timestamp_ms}"
        )
    if isinstance(starting, EachAt | EachSince) and type(starting) is type(ending):
        for where, start in starting.of.items():
            end = ending.of.get(where, LATEST)
            if start >= 0 and 0 <= end < start:
                raise OptionError(f"{where[0]}-{where[1]} is to be read from {start} to {end}, which lies before")
