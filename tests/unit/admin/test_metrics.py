"""Labels stay bounded, however many topics there are."""

from __future__ import annotations

from proxy.admin.state_metrics import MAX_TOPICS_NAMED, named_topics
from proxy.telemetry.stats import OTHER_TOPICS


def test_few_topics_are_named() -> None:
    assert named_topics({"b": 1, "a": 2}) == {"a": 2, "b": 1}
    assert named_topics({}) == {}


def test_the_topics_with_the_most_are_named_and_the_others_summed() -> None:
    counts = {f"topic-{number:03}": number for number in range(1, 101)}
    named = named_topics(counts)
    assert len(named) == MAX_TOPICS_NAMED + 1
    assert sum(named.values()) == sum(counts.values())
    assert min(value for name, value in named.items() if name != OTHER_TOPICS) == 101 - MAX_TOPICS_NAMED
