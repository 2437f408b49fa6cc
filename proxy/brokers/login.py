"""The proxy's own authentication to brokers, on its service connections (settings `brokers.sasl`).

Credentials in files are read at each authentication, so renewed credentials are used from the next authentication on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from proxy.aws.credentials import AwsCredentials, NoCredentials
from proxy.config.security import BrokerSasl
from proxy.protocol.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.protocol.errors import NONE
from proxy.security.msk_iam import MskIam, region_of
from proxy.security.oauth import fetch_token, read_credentials
from proxy.security.sasl import OAuthBearer, Plain, SaslError, SaslMechanism, Scram, refusal
from proxy.wire.errors import ProtocolError
from proxy.wire.sasl import (
    AUTHENTICATE_VERSION,
    HANDSHAKE_VERSION,
    build_authenticate,
    build_handshake,
    parse_authenticate_response,
    parse_handshake_response,
)

if TYPE_CHECKING:
    from proxy.brokers.upstream import BrokerConnection

_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MAX_ROUNDS = 8
_UNSUPPORTED_SASL_MECHANISM = 33


class LoginFailed(Exception):
    """The broker did not let the proxy in; one line with setting, cause and remedy, and no secret."""


class Login:
    """Authenticates connections with the proxy's own credentials."""

    def __init__(self, settings: BrokerSasl, *, client_id: str, timeout_s: float) -> None:
        """`timeout_s` is for a token endpoint; the exchange with the broker is limited by who asks for it."""
        self._settings = settings
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._aws = AwsCredentials() if settings.mechanism == "AWS_MSK_IAM" else None

    async def authenticate(self, connection: BrokerConnection) -> float | None:
        """Authenticate, first or again (KIP-368); seconds until it has to be done again, None for never.

        Nothing else may be sent on the connection meanwhile. Raises LoginFailed, and BrokerUnreachable.
        """
        try:
            mechanism = await self._mechanism(connection.host)
            body = build_handshake(self._settings.mechanism)
            answer = await connection.ask(SASL_HANDSHAKE, HANDSHAKE_VERSION, body, self._client_id)
            handshake = parse_handshake_response(answer)
            if handshake.error_code != NONE:
                raise LoginFailed(self._explain_handshake(handshake.error_code, handshake.mechanisms))
            return await self._exchange(connection, mechanism)
        except (SaslError, NoCredentials) as error:
            raise LoginFailed(f"brokers.sasl: {error}") from None
        except ProtocolError as error:
            raise LoginFailed(
                f"the broker's answer can't be parsed: {error}; check that this is its Kafka port"
            ) from None

    async def _exchange(self, connection: BrokerConnection, mechanism: SaslMechanism) -> float | None:
        token = mechanism.respond(b"")
        lifetime_ms = 0
        for _ in range(_MAX_ROUNDS):
            if token is None:
                return lifetime_ms / 1000 if lifetime_ms else None
            answer = await connection.ask(
                SASL_AUTHENTICATE, AUTHENTICATE_VERSION, build_authenticate(token), self._client_id
            )
            result = parse_authenticate_response(answer, AUTHENTICATE_VERSION)
            if result.error_code != NONE:
                raise LoginFailed(
                    f"brokers.sasl: the broker rejects the proxy's credentials: "
                    f"{result.error_message or result.error_code}"
                    f"; {self._remedy}"
                )
            lifetime_ms = result.session_lifetime_ms
            token = mechanism.respond(result.auth_bytes)
            if self._settings.mechanism == "OAUTHBEARER" and token is not None:
                raise LoginFailed(f"brokers.sasl: the broker rejects the token: {refusal(result.auth_bytes)}; renew it")
        raise LoginFailed(f"the broker requested more than {_MAX_ROUNDS} tokens; check brokers.sasl.mechanism")

    async def _mechanism(self, host: str) -> SaslMechanism:
        settings = self._settings
        if self._aws is not None:
            region = settings.aws_region or region_of(host) or self._aws.region()
            if not region:
                raise SaslError(f"{host} names no AWS region; set brokers.sasl.aws_region")
            return MskIam(host, region, await self._aws.current())
        if settings.mechanism == "OAUTHBEARER":
            if settings.token_file:
                return OAuthBearer(_read("token_file", settings.token_file))
            return OAuthBearer(
                await fetch_token(read_credentials(Path(settings.client_credentials_file)), self._timeout_s)
            )
        password = settings.password.get_secret_value() or _read("password_file", settings.password_file)
        if settings.mechanism == "PLAIN":
            return Plain(settings.username, password)
        return Scram(_DIGESTS[settings.mechanism], settings.username, password)

    @property
    def _remedy(self) -> str:
        if self._settings.mechanism == "AWS_MSK_IAM":
            return "check that the AWS role may do kafka-cluster:Connect, and brokers.sasl.aws_region"
        return f"check username, password or token of mechanism {self._settings.mechanism}"

    def _explain_handshake(self, error_code: int, offered: tuple[str, ...]) -> str:
        if error_code == _UNSUPPORTED_SASL_MECHANISM:
            return (
                f"brokers.sasl.mechanism: the brokers' listener does not offer {self._settings.mechanism}, only "
                f"{', '.join(offered) or 'none'}; choose one of these"
            )
        return (
            f"brokers.security_protocol: the broker answered SaslHandshake with error {error_code}; see whether "
            "brokers.bootstrap names its SASL port"
        )


def _read(setting: str, file: str) -> str:
    try:
        return Path(file).read_text().strip("\r\n")
    except OSError as error:
        raise SaslError(
            f"{setting}: can't read {file}: {error.strerror}; name a file that the proxy may read"
        ) from None
    except UnicodeDecodeError:
        raise SaslError(f"{setting}: {file} is not text; save it as UTF-8") from None
