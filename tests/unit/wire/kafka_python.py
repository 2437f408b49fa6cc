"""kafka-python's messages: the second oracle. Importing it warns of what it uses; that is not for us to mend."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    from kafka.protocol.api_key import ApiKey
    from kafka.protocol.consumer import FetchResponse
    from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse
    from kafka.protocol.producer import ProduceResponse

__all__ = ["ApiKey", "ApiVersionsResponse", "FetchResponse", "MetadataResponse", "ProduceResponse", "request_versions"]


def request_versions():
    """(API key, lowest, highest version) of every request that kafka-python knows."""
    rooms = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer)
    kinds = [getattr(room, name) for room in rooms for name in room.__all__ if name.endswith("Request")]
    return [(kind.API_KEY, *kind.valid_versions) for kind in kinds]
