from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict

from pipeline.source.errors import OptionError
from pipeline.source.limits import EARLIEST, LATEST, AllAt, EachAt, EachSince, Since
from pipeline.source.options import NAMES, parse_options

LEAST = {"config": "proxy.yaml", "subscribe": "orders"}


def refused(text: str, kind: str = "any", **options: str) -> None:
    with pytest.raises(OptionError, match=text) as error:
        parse_options({"config": "proxy.yaml", **options}, kind=kind)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_defaults_are_those_of_the_kafka_source() -> None:
    batch, stream = parse_options(LEAST, kind="batch"), parse_options(LEAST, kind="stream")
    assert (batch.starting, batch.ending) == (AllAt(EARLIEST), AllAt(LATEST))
    assert stream.starting == AllAt(LATEST)
    assert (batch.fail_on_data_loss, batch.include_headers, batch.max_trigger_delay_ms) == (True, False, 900_000)
    assert (batch.min_partitions, batch.max_records_per_partition, batch.max_offsets_per_trigger) == (None, None, None)
    assert not batch.latest_where_none_matches
    assert batch.split_bytes == 64 << 20


def test_names_are_taken_in_any_case() -> None:
    given = CaseInsensitiveDict({"CONFIG": "a.yaml", "SubScribe": " a , b,a,", "FAILONDATALOSS": "False"})
    options = parse_options(given)
    assert (options.config, options.selection.names, options.fail_on_data_loss) == ("a.yaml", ("a", "b"), False)


def test_topics_must_be_chosen_by_exactly_one_option() -> None:
    refused("exactly one of the options subscribe, assign and subscribePattern says what is read; none is given")
    refused("subscribe and assign are given", subscribe="a", assign='{"a": [0]}')
    refused("names no topic", subscribe=" , ")
    refused("is empty", subscribePattern=" ")
    refused("is not a regular expression", subscribePattern="(")
    refused("has to be JSON like", assign="orders")
    for text in ("{}", "[]", '{"a": []}', '{"a": [-1]}', '{"a": ["0"]}', '{"a": [true]}', '{"a": {"0": 1}}'):
        refused("has to be JSON like", assign=text)
    assert parse_options({"config": "c", "assign": '{"a": [2, 0, 2]}'}).selection.partitions == {"a": (0, 2)}


def test_unknown_options_are_rejected() -> None:
    refused("has no option 'topics'; it has config, subscribe", subscribe="a", topics="a")
    refused("'kafka.bootstrap.servers' is of no use", **LEAST | {"kafka.bootstrap.servers": "a:1"})
    with pytest.raises(OptionError, match="option 'config' is missing"):
        parse_options({"subscribe": "a"})


def test_options_of_the_other_kind_of_query_are_rejected() -> None:
    refused("a stream has no end", "stream", subscribe="a", endingTimestamp="5")
    refused("a batch query has no triggers", "batch", subscribe="a", maxOffsetsPerTrigger="5")
    parse_options({**LEAST, "endingOffsets": "latest", "maxOffsetsPerTrigger": "5"})  # not known yet which it is


def test_offsets() -> None:
    each = json.dumps({"a": {"0": 5, "1": -2}, "b": {"0": -1}})
    assert parse_options({**LEAST, "startingOffsets": each}).starting == EachAt(
        {("a", 0): 5, ("a", 1): -2, ("b", 0): -1}
    )
    assert parse_options({**LEAST, "startingOffsets": " Latest "}).starting == AllAt(LATEST)
    refused("can't be latest in a batch query", "batch", subscribe="a", startingOffsets="latest")
    refused(r"can't be latest \(-1\) for a partition", "batch", subscribe="b", startingOffsets=each)
    refused("can't be earliest", subscribe="a", endingOffsets="earliest")
    refused("can't be earliest", subscribe="a", endingOffsets=each)
    refused("below -2", subscribe="a", startingOffsets='{"a": {"0": -3}}')
    for text in ("newest", '{"a": 5}', '{"a": {"x": 5}}', '{"a": {"0": 1.5}}', '{"a": {"0": "5"}}', "{}", "[" * 9999):
        refused("has to be JSON like", subscribe="a", startingOffsets=text)
    refused("from 9 to 5", subscribe="a", startingOffsets='{"a": {"0": 9}}', endingOffsets='{"a": {"0": 5}}')


def test_times_come_before_offsets() -> None:
    by_time = '{"orders": {"0": 7}}'
    options = {**LEAST, "startingOffsets": "earliest", "startingOffsetsByTimestamp": by_time}
    assert parse_options(options).starting == EachSince({("orders", 0): 7})
    assert parse_options({**options, "startingTimestamp": "9"}).starting == Since(9)
    refused("can't be negative", subscribe="a", startingTimestamp="-1")
    refused("has a negative time", subscribe="a", endingOffsetsByTimestamp='{"a": {"0": -1}}')
    refused("startingTimestamp 9 is after endingTimestamp 8", subscribe="a", startingTimestamp="9", endingTimestamp="8")
    assert parse_options({**LEAST, "startingOffsetsByTimestampStrategy": "LATEST"}).latest_where_none_matches
    refused("is error or latest", subscribe="a", startingOffsetsByTimestampStrategy="earliest")


def test_numbers_and_spans() -> None:
    for name in (
        "minPartitions",
        "maxRecordsPerPartition",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "splitBytes",
    ):
        refused(f"'{name}' has to be above 0", subscribe="a", **{name: "0"})
        refused(f"'{name}' has to be a whole number", subscribe="a", **{name: "many"})
    refused("minOffsetsPerTrigger 6 is more than", subscribe="a", minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    refused("is true or false", subscribe="a", includeHeaders="yes")
    refused("is a span of time", subscribe="a", maxTriggerDelay="soon")
    assert parse_options({**LEAST, "maxTriggerDelay": "90s"}).max_trigger_delay_ms == 90_000


@given(st.dictionaries(st.sampled_from(NAMES), st.text() | st.integers().map(str) | st.sampled_from(["{}", "latest"])))
def test_options_are_read_or_refused_in_one_way(options: dict[str, str]) -> None:
    for kind in ("batch", "stream", "any"):
        try:
            parse_options(options, kind=kind)  # type: ignore[arg-type]
        except OptionError:
            pass
