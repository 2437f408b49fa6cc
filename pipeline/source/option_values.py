"""Reading the values of single options. Every function raises OptionError, which names the option and what it holds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.source.errors import OptionError
from pipeline.source.limits import TopicPartition

_LARGEST = 2**63 - 1
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def positive(options: Mapping[str, str], name: str) -> int | None:
    """Return a whole number above 0; None if the option is not given."""
    if name not in options:
        return None
    number = _number(options, name)
    if number < 1:
        raise OptionError(f"option {name!r} has to be above 0; it is {number}")
    return number


def not_negative(options: Mapping[str, str], name: str) -> int:
    """Return a whole number of an option that is given."""
    number = _number(options, name)
    if number < 0:
        raise OptionError(f"option {name!r} can't be negative; it is {number}")
    return number


def truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """`true` or `false`."""
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name!r} is true or false, not {options[name]!r}")
    return text == "true"


def one_of(options: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    """One of the words, the first of which is the default."""
    text = options.get(name, allowed[0]).strip().lower()
    if text not in allowed:
        raise OptionError(f"option {name!r} is {' or '.join(allowed)}, not {options[name]!r}")
    return text


def span_ms(options: Mapping[str, str], name: str, default: str) -> int:
    """Milliseconds of `15m`, `30s`, `500ms`; of a bare number, too."""
    found = re.fullmatch(r"(\d{1,15})\s*(ms|s|min|m|h|d|)", options.get(name, default).strip().lower())
    if not found:
        raise OptionError(f"option {name!r} is a span of time as 15m, 30s or 500ms, not {options[name]!r}")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def by_partition(options: Mapping[str, str], name: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23, "1": -1}}`."""
    form = '{"topic": {"0": 23, "1": 42}}'
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json(options, name, form).items():
        if not isinstance(partitions, dict):
            raise _unlike(options, name, form)
        for partition, number in partitions.items():
            if not re.fullmatch(r"\d{1,9}", partition) or type(number) is not int or abs(number) > _LARGEST:
                raise _unlike(options, name, form)
            numbers[topic, int(partition)] = number
    if not numbers:
        raise _unlike(options, name, form)
    return numbers


def assigned(options: Mapping[str, str], name: str) -> dict[str, tuple[int, ...]]:
    """`{"topic": [0, 1]}`."""
    form = '{"topic": [0, 1]}'
    chosen: dict[str, tuple[int, ...]] = {}
    for topic, partitions in _json(options, name, form).items():
        if not isinstance(partitions, list) or not partitions:
            raise _unlike(options, name, form)
        if not all(type(partition) is int and 0 <= partition < 2**31 for partition in partitions):
            raise _unlike(options, name, form)
        chosen[topic] = tuple(sorted(set(partitions)))
    if not chosen:
        raise _unlike(options, name, form)
    return chosen


def _number(options: Mapping[str, str], name: str) -> int:
    text = options[name].strip()
    if not re.fullmatch(r"[+-]?\d{1,19}", text) or abs(int(text)) > _LARGEST:
        raise OptionError(f"option {name!r} has to be a whole number, not {options[name]!r}")
    return int(text)


def _json(options: Mapping[str, str], name: str, form: str) -> dict[str, Any]:
    try:
        data = json.loads(options[name])
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise _unlike(options, name, form)
    return data


def _unlike(options: Mapping[str, str], name: str, form: str) -> OptionError:
    return OptionError(f"option {name!r} has to be JSON like {form}, not {options[name]!r}")
