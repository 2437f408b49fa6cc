"""The answer to DescribeConfigs with some results changed is what decoding and encoding all of it would give."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.wire.cold import encode, milliseconds, nested, read_entity, read_response
from proxy.wire.described_configs import DESCRIBE_CONFIGS, Described, RecentConfigs, result_type, rewrite_described
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import Buffer

VERSIONS = (1, 2, 3, 4)


def fitting(kind: Any, **values: Any) -> Any:
    """Return an entity of a version that may lack some of the fields."""
    return kind(**{name: value for name, value in values.items() if name in kind.__dataclass_fields__})


def answer(version: int, chance: Random) -> Any:
    """Return an answer about topics of which some have the same configs."""
    schema: Any = load_response_schema(DESCRIBE_CONFIGS, version)
    kind = result_type(version)
    config_type = nested(kind, "configs")
    synonym_type = nested(config_type, "synonyms")

    def config(number: int, value: str | None) -> Any:
        synonyms = tuple(synonym_type(name="a.config", value=value, source=one) for one in range(1, number % 3 + 1))
        return fitting(
            config_type,
            name=f"a.config.{number}",
            value=value,
            read_only=bool(number % 2),
            config_source=5,
            is_sensitive=value is None,
            synonyms=synonyms,
            config_type=2,
            documentation="what it does" if number % 4 == 0 else None,
        )

    def result(number: int) -> Any:
        value = chance.choice((None, "1", "another"))
        return kind(
            error_code=ErrorCode(chance.choice((0, 0, 0, 29))),
            error_message=chance.choice((None, "no")),
            resource_type=chance.choice((2, 4)),
            resource_name=f"topic-{number}",
            configs=tuple(config(one, value) for one in range(chance.choice((0, 3, 5)))),
        )

    return schema(throttle_time=milliseconds(7), results=tuple(map(result, range(40))))


@pytest.mark.parametrize("version", VERSIONS)
def test_changed_results_are_in_the_place_of_the_brokers(version: int) -> None:
    recent = RecentConfigs()
    for seed in range(5):
        whole = answer(version, Random(seed))

        def changes(one: Any) -> bool:
            return one.error_code in (0, ErrorCode(0)) and one.resource_type == 2

        def change(one: Described) -> Buffer | None:
            read = read_entity(result_type(version), one.whole())
            assert (read.error_code.value, read.resource_type, read.resource_name) == one[:3]
            return encode(replace(read, configs=read.configs[:1])) if changes(one) else None

        results = tuple(replace(one, configs=one.configs[:1]) if changes(one) else one for one in whole.results)
        rewritten = b"".join(rewrite_described(encode(whole), version, recent, change))
        assert read_response(DESCRIBE_CONFIGS, version, rewritten) == replace(whole, results=results)
        assert rewritten == encode(replace(whole, results=results))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_cut_off_is_rejected_whatever_was_seen_before(version: int) -> None:
    whole, recent = encode(answer(version, Random(1))), RecentConfigs()
    rewrite_described(whole, version, recent, lambda one: None)
    for end in range(0, len(whole), 7):
        with pytest.raises(ProtocolError):
            rewrite_described(whole[:end], version, recent, lambda one: None)


def test_configs_that_were_seen_are_not_walked_again() -> None:
    recent = RecentConfigs()
    body = encode(answer(4, Random(2)))
    first = sum(1 for _ in rewrite_described.steps(body, 4, recent, lambda one: None))
    again = sum(1 for _ in rewrite_described.steps(body, 4, recent, lambda one: None))
    assert (0 < first < 40, again) == (True, 0)
