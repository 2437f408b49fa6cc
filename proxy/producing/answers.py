"""Answers for partitions that have no outcome yet, or never will have one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.producing.split import DisklessPart
from proxy.protocol.errors import REQUEST_TIMED_OUT
from proxy.wire.produce import PartitionProduce, PartitionProduced, ProduceRequest, TopicProduced
from proxy.wire.steps import Steps, in_slices

TWICE = "the request has records for this partition already: send what follows in another request"
"""Message for a partition that the request has named before."""


def placed_in_steps(parts: Iterable[DisklessPart], errors: Iterable[int]) -> Steps[list[TopicProduced]]:
    """Answer partitions with the error of their topic, or else with REQUEST_TIMED_OUT; it pauses."""
    topics = []
    for part, error_code in zip(parts, errors, strict=True):
        answers: list[PartitionProduced] = []
        for some in in_slices(part.partitions):
            answers += _placed(some, error_code or REQUEST_TIMED_OUT)
            yield
        topics.append(TopicProduced(part.topic, answers))
    return topics


def all_timed_out(parsed: ProduceRequest) -> list[TopicProduced]:
    """Return the answer to a request of which nothing was accepted."""
    return [TopicProduced(topic, _placed(partitions, REQUEST_TIMED_OUT)) for topic, partitions, _ in parsed.topics]


def _placed(partitions: Sequence[PartitionProduce], error_code: int) -> list[PartitionProduced]:
    return [PartitionProduced(partition.index, error_code) for partition in partitions]
