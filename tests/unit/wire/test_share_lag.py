"""The lag of diskless topics is taken out of DescribeShareGroupOffsets, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from proxy.wire.cold import encode, read_response
from proxy.wire.share import without_lag
from tests.support.questions import filled
from tests.unit.wire import trees

KEY, VERSION = 90, 1


def response() -> bytes:
    """Two groups with a classic and a diskless topic each."""
    partitions = [{"partition_index": index, "start_offset": 5, "lag": 70 + index} for index in range(3)]
    topics = [{"topic_name": name, "partitions": partitions} for name in ("classic", "diskless")]
    groups = [{"group_id": group, "topics": topics} for group in ("a", "b")]
    entity = trees.response_type(KEY, VERSION)
    return trees.encode(entity, filled(entity, {"groups": groups}))


def test_only_the_lag_of_diskless_topics_is_taken_out() -> None:
    body = response()
    rewritten = b"".join(without_lag(body, lambda name: name == "diskless"))
    before, after = read_response(KEY, VERSION, body), read_response(KEY, VERSION, rewritten)
    lags = {
        (str(group.group_id), str(topic.topic_name)): [one.lag for one in topic.partitions]
        for group in after.groups
        for topic in group.topics
    }
    assert lags == {
        (group, name): [-1] * 3 if name == "diskless" else [70, 71, 72]
        for group in ("a", "b")
        for name in ("classic", "diskless")
    }
    expected = replace(
        before,
        groups=tuple(
            replace(
                group,
                topics=tuple(
                    topic
                    if str(topic.topic_name) == "classic"
                    else replace(topic, partitions=tuple(replace(one, lag=-1) for one in topic.partitions))
                    for topic in group.topics
                ),
            )
            for group in before.groups
        ),
    )
    assert encode(expected) == rewritten
