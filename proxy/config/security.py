"""Settings of TLS and SASL, for the clients' connections and for the proxy's connections to the brokers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from proxy.config.section import Section

TlsVersion = Literal["TLSv1.2", "TLSv1.3"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


class ListenerTls(Section):
    """TLS of a range of listeners. All files are PEM, and are read again when they change."""

    certificate_file: str = Field(min_length=1)
    """The certificate, followed by the certificates between it and its CA."""
    key_file: str = ""
    """Private key of the certificate; if empty, it is in `certificate_file`."""
    key_password: SecretStr = SecretStr("")
    """Password of an encrypted key."""
    client_ca_file: str = ""
    """CAs whose client certificates are accepted."""
    client_auth: Literal["none", "requested", "required"] = "none"
    """`ssl.client.auth` of the brokers: whether clients show a certificate. It only decides whether a client may
    connect: brokers learn who the client is by SASL alone."""
    minimum_version: TlsVersion = "TLSv1.2"
    """Lowest version of TLS that is accepted."""

    @model_validator(mode="after")
    def _clients_have_a_ca(self) -> ListenerTls:
        if self.client_auth != "none" and not self.client_ca_file:
            raise ValueError(f"client_auth is {self.client_auth}, but client_ca_file is empty; name the clients' CA")
        if self.client_auth == "none" and self.client_ca_file:
            raise ValueError("client_ca_file has no effect while client_auth is none; set it to required or requested")
        return self


class BrokerTls(Section):
    """TLS to the brokers. All files are PEM, and are read again when they change."""

    ca_file: str = ""
    """CAs of the brokers' certificates; if empty, the CAs that the system trusts."""
    check_hostname: bool = True
    """Whether a broker's certificate has to name the host under which the proxy reaches it
    (`ssl.endpoint.identification.algorithm`)."""
    certificate_file: str = ""
    """The proxy's own certificate, for brokers that ask for one. On an SSL listener it is then the principal of *every*
    client: see `shared_principal`."""
    key_file: str = ""
    """Private key of the certificate; if empty, it is in `certificate_file`."""
    key_password: SecretStr = SecretStr("")
    """Password of an encrypted key."""
    minimum_version: TlsVersion = "TLSv1.2"
    """Lowest version of TLS that is accepted."""

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> BrokerTls:
        if self.key_file and not self.certificate_file:
            raise ValueError("key_file has no effect without certificate_file; name both or none")
        return self


class BrokerSasl(Section):
    """The proxy's own credentials, for its service connections. Clients authenticate to the brokers as themselves."""

    mechanism: Mechanism = "SCRAM-SHA-512"
    """SASL mechanism, which the brokers' listener has to offer. `AWS_MSK_IAM` is for Amazon MSK: the proxy signs with
    credentials of the usual AWS chain (environment, profile, web identity, instance role)."""
    username: str = ""
    """User name for PLAIN and SCRAM."""
    password: SecretStr = SecretStr("")
    """Password for PLAIN and SCRAM. Prefer `password_file`."""
    password_file: str = ""
    """File that contains only the password. It is read at each authentication."""
    token_file: str = ""
    """For OAUTHBEARER: file that contains only the token (a JWT). It is read at each authentication."""
    client_credentials_file: str = ""
    """For OAUTHBEARER: JSON file with `token_endpoint_url` (https), `client_id`, `client_secret` and, optionally,
    `scope`. A token is requested at each authentication (RFC 6749, section 4.4)."""
    aws_region: str = ""
    """For AWS_MSK_IAM: region of the brokers. If empty, it is taken from the broker's host name, or else from the AWS
    profile or environment."""

    @model_validator(mode="after")
    def _credentials_fit(self) -> BrokerSasl:
        if self.mechanism == "OAUTHBEARER":
            if bool(self.token_file) == bool(self.client_credentials_file):
                raise ValueError("OAUTHBEARER takes either token_file or client_credentials_file; name one of them")
            if self.username or self.password.get_secret_value() or self.password_file:
                raise ValueError("OAUTHBEARER takes no username and no password; remove them")
            return self
        if self.aws_region and self.mechanism != "AWS_MSK_IAM":
            raise ValueError(f"aws_region has no effect with {self.mechanism}; remove it")
        if self.token_file or self.client_credentials_file:
            raise ValueError(f"{self.mechanism} takes no token; remove it, or set mechanism to OAUTHBEARER")
        if self.mechanism == "AWS_MSK_IAM":
            if self.username or self.password.get_secret_value() or self.password_file:
                raise ValueError("AWS_MSK_IAM takes its credentials from AWS; remove username and password")
            return self
        if not self.username:
            raise ValueError(f"{self.mechanism} needs a username")
        if bool(self.password.get_secret_value()) == bool(self.password_file):
            raise ValueError(f"{self.mechanism} takes either password or password_file; name one of them")
        return self


def check_broker_security(protocol: SecurityProtocol, tls: BrokerTls | None, sasl: BrokerSasl | None) -> None:
    """Check that the settings of `brokers` fit each other. Raises ValueError."""
    if protocol.startswith("SASL_") and sasl is None:
        raise ValueError(f"security_protocol is {protocol}, but sasl is missing; give the proxy credentials of its own")
    if sasl is not None and not protocol.startswith("SASL_"):
        raise ValueError(f"sasl has no effect with security_protocol {protocol}; set it to SASL_SSL, or remove sasl")
    if tls is not None and not protocol.endswith("SSL"):
        raise ValueError(
            f"tls has no effect with security_protocol {protocol}; set it to SSL or SASL_SSL, or remove tls"
        )


def check_principals(
    protocol: SecurityProtocol, broker_certificate: str, listeners: dict[str, ListenerTls | None]
) -> None:
    """Reject settings under which clients seem to have their own identities but the brokers see a single one.

    The brokers learn who a client is from its own SASL exchange, which passes through, and from nothing else: a TLS
    session ends at the proxy. So without SASL all clients are one principal: ANONYMOUS, or that of the proxy's own
    certificate. That equals the brokers' own listener only as long as neither clients nor the proxy show a certificate.
    `listeners` has their TLS settings by name. Raises ValueError.
    """
    if protocol.startswith("SASL_"):
        return
    remedy = (
        "use a SASL listener of the brokers (brokers.security_protocol), or set shared_principal to true if all "
        "clients may have the same rights"
    )
    if broker_certificate:
        raise ValueError(
            f"brokers.tls.certificate_file with security_protocol {protocol} makes every client the principal of the "
            f"proxy's certificate; {remedy}"
        )
    for name, tls in listeners.items():
        if tls is not None and tls.client_auth != "none":
            raise ValueError(
                f"{name}.tls.client_auth is {tls.client_auth}, but with security_protocol {protocol} no broker "
                f"sees the clients' certificates: all clients would be the proxy's own principal; {remedy}"
            )
