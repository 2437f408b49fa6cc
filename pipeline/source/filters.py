"""The rows and batches that can hold the requested records, by Spark's filters.

Spark applies all filters again to the result: this module only ever keeps too much, never too little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pyspark.sql import datasource

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_EQUAL = (datasource.EqualTo, datasource.EqualNullSafe)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The conditions that every record of a query's result has to meet."""

    topics: frozenset[str] | None = None
    """None for any."""
    partitions: frozenset[int] | None = None
    lowest_partition: int = 0
    highest_partition: int = _HIGHEST
    lowest_offset: int = 0
    highest_offset: int = _HIGHEST
    lowest_timestamp_ms: int = _LOWEST
    """No highest one: neither a row nor a batch says how old its oldest record is."""

    def wants(self, topic: str, partition: int) -> bool:
        """Return whether records of that partition may be wanted."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.lowest_partition <= partition <= self.highest_partition
        )


ANY = Bounds()


def bounds_of(filters: Iterable[datasource.Filter]) -> Bounds:
    """Return the bounds of all filters together; filters about other things than topic, partition, offset or time are
    left."""
    bounds = ANY
    for one in filters:
        column = getattr(one, "attribute", ())
        if column == ("topic",):
            bounds = _of_topic(bounds, one)
        elif column == ("partition",):
            bounds = _of_partition(bounds, one)
        elif column == ("offset",):
            lowest, highest = _range(one)
            bounds = replace(
                bounds,
                lowest_offset=max(bounds.lowest_offset, lowest),
                highest_offset=min(bounds.highest_offset, highest),
            )
        elif column == ("timestamp",):
            bounds = replace(bounds, lowest_timestamp_ms=max(bounds.lowest_timestamp_ms, _earliest_ms(one)))
    return bounds


def _of_topic(bounds: Bounds, one: Any) -> Bounds:
    values = _values(one, str)
    return bounds if values is None else replace(bounds, topics=_both(bounds.topics, values))


def _of_partition(bounds: Bounds, one: Any) -> Bounds:
    values = _values(one, int)
    if values is not None:
        return replace(bounds, partitions=_both(bounds.partitions, values))
    lowest, highest = _range(one)
    return replace(
        bounds,
        lowest_partition=max(bounds.lowest_partition, lowest),
        highest_partition=min(bounds.highest_partition, highest),
    )


def _both(known: frozenset[T] | None, values: frozenset[T]) -> frozenset[T]:
    return values if known is None else known & values


def _values(one: Any, kind: type) -> frozenset[Any] | None:
    """Return the possible values of the column; None if the filter does not name values.

    A null equals nothing that is read.
    """
    if isinstance(one, _EQUAL):
        values: tuple[Any, ...] = (one.value,)
    elif isinstance(one, datasource.In):
        values = tuple(one.value)
    else:
        return None
    return frozenset(value for value in values if isinstance(value, kind))


def _range(one: Any) -> tuple[int, int]:
    """Return the lowest and the highest whole number that the filter lets through."""
    values = _values(one, int)
    if values is not None:
        return (min(values), max(values)) if values else (_HIGHEST, _LOWEST)
    number = getattr(one, "value", None)
    if isinstance(number, int):
        if isinstance(one, datasource.GreaterThan):
            return number + 1, _HIGHEST
        if isinstance(one, datasource.GreaterThanOrEqual):
            return number, _HIGHEST
        if isinstance(one, datasource.LessThan):
            return _LOWEST, number - 1
        if isinstance(one, datasource.LessThanOrEqual):
            return _LOWEST, number
    return _LOWEST, _HIGHEST


def _earliest_ms(one: Any) -> int:
    """Return the millisecond of the earliest time that the filter lets through."""
    values = _values(one, datetime)
    if values is None and isinstance(one, datasource.GreaterThan | datasource.GreaterThanOrEqual):
        values = frozenset([one.value] if isinstance(one.value, datetime) else [])
    if not values or any(value.tzinfo is None for value in values):
        return _LOWEST
    earliest: int = min((value - _EPOCH) // _MILLISECOND for value in values)
    return earliest
