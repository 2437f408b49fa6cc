"""The existing brokers, and how the proxy reaches them."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from proxy.config.section import Addresses, Reloadable, Section
from proxy.config.security import BrokerSasl, BrokerTls, SecurityProtocol, check_broker_security
from proxy.config.values import parse_address


class Brokers(Section):
    """The existing brokers."""

    bootstrap: Addresses = Field(min_length=1)
    """`host:port` of brokers to start from."""
    connect_timeout_ms: int = Field(default=5_000, ge=1)
    """Longest time to connect to one address of a broker."""
    request_timeout_ms: int = Field(default=30_000, ge=1)
    """Timeout of the proxy's own requests to brokers."""
    metadata_refresh_ms: Reloadable[int] = Field(default=5_000, ge=10)
    """How often the proxy requests the list of live brokers, in addition to what it learns from clients' Metadata. Also
    how often one proxy of the fleet compares diskless topics with their placeholder topics."""
    defaults_refresh_ms: Reloadable[int] = Field(default=30_000, ge=10)
    """How often the proxy reads the brokers' defaults for topic configs (`message.max.bytes` and the like), which apply
    to topics that leave a config unset."""
    deleted_topics_confirm_ms: int = Field(default=30_000, ge=0)
    """How long a placeholder topic has to be missing before its diskless topic is deleted. This concerns placeholder
    topics that were deleted directly on the brokers. No live broker may have known the topic's ID in any check during
    this time."""
    stray_records_interval_ms: Reloadable[int] = Field(default=30_000, ge=10)
    """How often the proxy searches the logs of placeholder topics for stray records: records that were produced
    directly to the brokers."""
    security_protocol: SecurityProtocol = "PLAINTEXT"
    """`security.protocol` of the brokers' listener that `bootstrap` names. With SASL, clients authenticate to the
    brokers themselves, through the proxy."""
    tls: BrokerTls | None = None
    """TLS settings if `security_protocol` is SSL or SASL_SSL. If missing, the system's CAs are trusted."""
    sasl: BrokerSasl | None = None
    """The proxy's own credentials if `security_protocol` is SASL_PLAINTEXT or SASL_SSL."""
    quotas_refresh_ms: int = Field(default=5_000, ge=10)
    """How often the proxy reads the brokers' produce and consume quotas while diskless topics exist."""

    @field_validator("bootstrap")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            parse_address(address)
        return value

    @model_validator(mode="after")
    def _secured(self) -> Brokers:
        check_broker_security(self.security_protocol, self.tls, self.sasl)
        return self

    @property
    def with_sasl(self) -> bool:
        """True if every client of a broker has to authenticate."""
        return self.security_protocol.startswith("SASL_")
