"""kafka-python's messages: the second oracle. Its import raises warnings that are not ours to fix."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl
    from kafka.protocol.api_key import ApiKey
    from kafka.protocol.consumer import FetchResponse
    from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse
    from kafka.protocol.producer import ProduceRequest, ProduceResponse

__all__ = [
    "ApiKey",
    "ApiVersionsResponse",
    "FetchResponse",
    "MetadataResponse",
    "ProduceRequest",
    "ProduceResponse",
    "request_versions",
    "response_kinds",
    "response_schemas",
]

_ROOMS = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)


def _messages(ending):
    kinds = {getattr(room, name) for room in _ROOMS for name in dir(room) if name.endswith(ending)}
    return [kind for kind in kinds if getattr(kind, "API_KEY", None) is not None]


def request_versions():
    """(API key, lowest, highest version) of every request that kafka-python knows."""
    return sorted((kind.API_KEY, *kind.valid_versions) for kind in _messages("Request"))


def response_schemas():
    """(API key, schema as Kafka's own JSON) of every response that kafka-python knows."""
    return sorted(((kind.API_KEY, kind._json) for kind in _messages("Response")), key=lambda each: each[0])


def response_kinds():
    """The class of each response by API key."""
    return {kind.API_KEY: kind for kind in _messages("Response")}
