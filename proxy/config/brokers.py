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
    """For one broker's address."""
    request_timeout_ms: int = Field(default=30_000, ge=1)
    """For requests of the proxy's own."""
    metadata_refresh_ms: Reloadable[int] = Field(default=5_000, ge=10)
    """How often the proxy asks for the list of live brokers, in addition to what clients' Metadata shows; and how often
    one proxy of the fleet compares diskless topics with their placeholder topics."""
    defaults_refresh_ms: Reloadable[int] = Field(default=30_000, ge=10)
    """How often the brokers are asked what topics have that leave a config unset (`message.max.bytes` and the like)."""
    deleted_topics_confirm_ms: int = Field(default=30_000, ge=0)
    """A diskless topic whose placeholder topic was deleted past the proxies is deleted when no live broker has known
    that topic, by its ID, for this long at every look."""
    stray_records_interval_ms: Reloadable[int] = Field(default=30_000, ge=10)
    """How often the logs of placeholder topics are searched for records that somebody produced to the brokers, past the
    proxies."""
    security_protocol: SecurityProtocol = "PLAINTEXT"
    """`security.protocol` of the brokers' listener that `bootstrap` names. With SASL, clients authenticate to the
    brokers themselves, through the proxy."""
    tls: BrokerTls | None = None
    """Where `security_protocol` is SSL or SASL_SSL; the system's CAs where it is missing."""
    sasl: BrokerSasl | None = None
    """The proxy's own credentials, where `security_protocol` is SASL_PLAINTEXT or SASL_SSL."""
    quotas_refresh_ms: int = Field(default=5_000, ge=10)
    """How often their produce and consume quotas are asked for, while there are diskless topics."""

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
        """Whether everyone who connects to a broker has to authenticate."""
        return self.security_protocol.startswith("SASL_")
