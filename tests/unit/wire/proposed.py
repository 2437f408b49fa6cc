"""Schemas that KIP-1163 proposes, for the tests' own implementation of the protocol: kio's, with the KIP's
additions."""

import dataclasses

from tests.unit.wire.trees import request_type, response_type

METADATA, DESCRIBE_TOPIC_PARTITIONS = 3, 75


def _with(entity, added, replaced=None):
    """Return the entity type with more fields after its own, (name, type, Kafka's type), and other types for some
    fields."""
    fields = [
        (field.name, (replaced or {}).get(field.name, field.type), dataclasses.field(metadata=field.metadata))
        for field in dataclasses.fields(entity)
    ]
    fields += [(name, hint, dataclasses.field(metadata={"kafka_type": kind})) for name, hint, kind in added]
    return dataclasses.make_dataclass(entity.__name__, fields, namespace={"__flexible__": entity.__flexible__})


def _element(entity, name):
    return next(field.type for field in dataclasses.fields(entity) if field.name == name).__args__[0]


def _metadata_response():
    lower = response_type(METADATA, 13)
    topic = _element(lower, "topics")
    partition = _with(_element(topic, "partitions"), [("preferred_produce_brokers", tuple[int, ...], "int32")])
    topic = _with(topic, [("is_diskless", bool, "bool")], {"partitions": tuple[partition, ...]})
    return _with(lower, [], {"topics": tuple[topic, ...]})


METADATA_REQUEST = _with(request_type(METADATA, 13), [("rack_id", str | None, "string")])
METADATA_RESPONSE = _metadata_response()
DESCRIBE_TOPIC_PARTITIONS_REQUEST = _with(
    request_type(DESCRIBE_TOPIC_PARTITIONS, 0), [("rack_id", str | None, "string")]
)
