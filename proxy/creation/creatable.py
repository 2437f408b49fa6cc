"""Topics of a CreateTopics, and its results, in v7."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kio.schema.create_topics.v7.request import CreatableTopic
from kio.schema.create_topics.v7.response import CreatableTopicConfigs, CreatableTopicResult
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from proxy.topics.topic_configs import DISKLESS_ENABLE
from proxy.topics.topic_resources import DYNAMIC_TOPIC_CONFIG
from proxy.wire.cold import nested


def named_topic(name: str, partitions: int, replication_factor: int) -> CreatableTopic:
    """Return a topic to create, without configs; -1 stands for the controllers' default."""
    return CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(replication_factor),
        assignments=(),
        configs=(),
    )


def partition_count(topic: Any) -> int:
    """Return how many partitions the request names; 0 if it leaves the number to the brokers."""
    return len(topic.assignments) or max(topic.num_partitions, 0)


def with_configs(topic: Any, configs: Mapping[str, str | None]) -> Any:
    """Return the same topic with these configs."""
    config_type = nested(type(topic), "configs")
    return replace(topic, configs=tuple(config_type(name=name, value=value) for name, value in configs.items()))


def rejected(name: str, error_code: int, message: str) -> CreatableTopicResult:
    """Return the result of a topic that is not created."""
    return CreatableTopicResult(
        name=TopicName(name), topic_id=None, error_code=ErrorCode(error_code), error_message=message, configs=None
    )


def as_diskless(result: Any) -> Any:
    """Return the result of a topic that is diskless, with `diskless.enable` if the client may see configs."""
    if result.configs is None:
        return result
    enabled = CreatableTopicConfigs(
        name=DISKLESS_ENABLE, value="true", read_only=True, config_source=i8(DYNAMIC_TOPIC_CONFIG), is_sensitive=False
    )
    return replace(result, configs=(*result.configs, enabled))
