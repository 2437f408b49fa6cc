"""Creating a topic through a proxy, for `topics create`: Kafka's own tools reject `diskless.enable` themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from proxy.brokers.service import BrokerAccess, ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import BrokerTls, Settings
from proxy.inspection.stores import InspectionError
from proxy.protocol.api_keys import CREATE_TOPICS
from proxy.topics.topic_configs import DISKLESS_ENABLE
from proxy.wire.cold import encode, milliseconds, read_response

_VERSION = 7
_BY_DEFAULT = -1
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Host by which a listener on every address is reached from its own machine."""


class Created(NamedTuple):
    """A topic as the proxy answered it."""

    name: str
    topic_id: bytes
    partitions: int
    diskless: bool


async def create_topic(
    settings: Settings, name: str, partitions: int | None, configs: Mapping[str, str], ca_file: str = ""
) -> Created:
    """Create a topic at the bootstrap port of the proxy with these settings, diskless unless `configs` say otherwise.

    `partitions`: None for the brokers' default. `ca_file`: CAs of the listener's certificate, if not those of
    `brokers.tls`. Raises InspectionError, TlsError and ProtocolError.
    """
    sasl = settings.brokers.sasl
    if sasl is not None and sasl.mechanism == "AWS_MSK_IAM":
        raise InspectionError(
            "the signature of AWS_MSK_IAM names a broker's host, so it cannot pass through a proxy; create the topic "
            "by an Admin client through the proxy, with OAUTHBEARER or SCRAM"
        )
    wanted = {DISKLESS_ENABLE: "true", **configs}
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(_BY_DEFAULT if partitions is None else partitions),
        replication_factor=i16(_BY_DEFAULT),
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in wanted.items()),
    )
    timeout_ms = settings.brokers.request_timeout_ms
    body = encode(CreateTopicsRequest(topics=(topic,), timeout=milliseconds(timeout_ms), validate_only=False))
    host, port = _address(settings)
    connection = ServiceConnection(
        lambda: [(host, port)],
        BrokerAccess(_towards_the_proxy(settings, ca_file)),
        request_timeout_s=timeout_ms / 1000,
        max_frame_bytes=settings.limits.max_frame_bytes,
    )
    try:
        answer: Any = read_response(CREATE_TOPICS, _VERSION, await connection.ask(CREATE_TOPICS, _VERSION, body))
    except BrokerUnreachable as error:
        raise InspectionError(
            f"no proxy creates it at {host}:{port} ({error}); start the proxy, or name the settings file of one that "
            "runs here"
        ) from error
    finally:
        connection.close()
    (result,) = answer.topics
    if result.error_code.value:
        raise InspectionError(f"{name} was not created: {result.error_message or result.error_code.name}")
    topic_id = result.topic_id.bytes if result.topic_id is not None else bytes(16)
    return Created(name, topic_id, int(result.num_partitions), wanted[DISKLESS_ENABLE].lower() == "true")


def _address(settings: Settings) -> tuple[str, int]:
    """Return where clients of the first listeners bootstrap."""
    host = settings.listeners.client_host
    return _EVERYWHERE.get(host, host), settings.listeners.bootstrap_port


def _towards_the_proxy(settings: Settings, ca_file: str) -> Settings:
    """Return settings whose brokers are this proxy: its listeners' TLS, and the proxy's own credentials."""
    brokers, with_tls = settings.brokers, settings.listeners.tls is not None
    known = brokers.tls or BrokerTls()
    update = {
        "security_protocol": ("SASL_" if brokers.with_sasl else "") + ("SSL" if with_tls else "PLAINTEXT"),
        "tls": known.model_copy(update={"ca_file": ca_file or known.ca_file}) if with_tls else None,
    }
    return settings.model_copy(update={"brokers": brokers.model_copy(update=update)})
