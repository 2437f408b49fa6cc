"""Partitions of a Metadata response equal those of an independent reader, and the only error is ours."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.errors import ProtocolError
from proxy.wire.partition_states import VERSION, read_partitions, split_topics
from tests.unit.wire.trees import encode, response_type, trees

METADATA = 3
_MODEST = settings(max_examples=60, deadline=None)


def state_of(partition):
    isr = [node for node in partition["isr_nodes"] if node not in partition["offline_replicas"]]
    return partition["leader_id"], partition["leader_epoch"], tuple(partition["replica_nodes"]), tuple(isr)


@_MODEST
@given(data=st.data())
def test_every_topic_and_partition_is_read(data):
    entity = response_type(METADATA, VERSION)
    tree = data.draw(trees(entity))
    topics = split_topics(memoryview(encode(entity, tree)))
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in topics] == [
        (topic["error_code"], topic["name"], topic["topic_id"]) for topic in tree["topics"]
    ]
    for topic, expected in zip(topics, tree["topics"], strict=True):
        states = {one["partition_index"]: state_of(one) for one in expected["partitions"]}
        assert {index: tuple(state) for index, state in read_partitions(topic.encoded).items()} == states


def test_a_short_answer_is_rejected():
    with pytest.raises(ProtocolError):
        split_topics(bytes(5))
