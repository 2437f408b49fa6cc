"""TLS and SASL of the stack: its own CA, users with random passwords, and the clients' settings for them.

With SASL the brokers authorise (StandardAuthorizer): `admin` may do everything, `proxy` is the proxies' own principal
with the least rights that they need, `alice` and `bob` have none until a test gives them some. All mechanisms except
OAUTHBEARER, whose unsecured tokens are made for any name, use the users' passwords.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from proxy.config import Journal
from proxy.demo.errors import StackError
from proxy.demo.ports import HOST
from proxy.protocol.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.security.sasl import Plain
from proxy.wire.header import request_header
from proxy.wire.sasl import (
    AUTHENTICATE_VERSION,
    HANDSHAKE_VERSION,
    build_authenticate,
    build_handshake,
    parse_authenticate_response,
    parse_handshake_response,
)

SecurityKind = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
BROKER, ADMIN, SERVICE = "broker", "admin", "proxy"
USERS = (BROKER, ADMIN, SERVICE, "alice", "bob")
LISTENER = "CLIENTS"
OAUTH_LIFETIME_S = 3600
_MODULES = "org.apache.kafka.common.security"
_CORRELATION_ID = 1
_HEADER_BYTES = 4


class StackSecurity:
    """The secrets of one stack, in its directory, and the settings that follow from them."""

    def __init__(self, directory: Path, kind: SecurityKind) -> None:
        self.kind = kind
        self.protocol = kind.upper()
        self.with_tls = kind.endswith("ssl")
        self.with_sasl = kind.startswith("sasl")
        self._config = directory / "config"
        self.ca_file = self._config / "ca.pem"
        self.users: dict[str, str] = {}
        """Passwords by user."""
        self.ca: Any = None
        """The `trustme.CA`, for certificates of tests' own."""

    def prepare(self) -> None:
        """Make users and certificates; users are kept where the directory has some."""
        if self.with_sasl:
            path = self._config / "users.json"
            if not path.exists():
                path.write_text(json.dumps({user: f"{user}-{secrets.token_hex(12)}" for user in USERS}))
            self.users = json.loads(path.read_text())
        if self.with_tls:
            import trustme

            self.ca = trustme.CA()
            self.ca.cert_pem.write_to_path(str(self.ca_file))
            for name in ("broker", "listener"):
                self.issue(name)

    def issue(self, name: str, *identities: str) -> Path:
        """Return a certificate with its key, in one PEM file; for the stack's own host where no identity is named."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )

        issued = self.ca.issue_cert(*(identities or (HOST, "localhost")), common_name=name)
        # Java reads no other form of a key.
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = self._config / f"{name}.pem"
        path.write_bytes(pem + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return path

    # For the brokers

    def controller_properties(self) -> dict[str, str]:
        """Over those of the controller."""
        return self._authorizer() if self.with_sasl else {}

    def broker_properties(self, address: str) -> dict[str, str]:
        """Over those of the broker at `host:port`."""
        listener = f"{LISTENER}://{address}"
        properties = {
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{LISTENER}:{self.protocol}",
            "listeners": listener,
            "advertised.listeners": listener,
            "inter.broker.listener.name": LISTENER,
        }
        if self.with_tls:
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._config / "broker.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca_file),
            }
        if self.with_sasl:
            properties |= self._authorizer() | self._sasl()
        return properties

    def format_arguments(self) -> list[str]:
        """For `StorageTool format`: the users' SCRAM credentials."""
        return [
            argument
            for user, password in self.users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ]

    def _authorizer(self) -> dict[str, str]:
        # Brokers and controller talk among themselves without TLS and SASL: as ANONYMOUS.
        principals = ";".join(f"User:{name}" for name in ("ANONYMOUS", BROKER, ADMIN))
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": principals,
        }

    def _sasl(self) -> dict[str, str]:
        prefix = f"listener.name.{LISTENER.lower()}"
        users = " ".join(f'user_{user}="{password}"' for user, password in self.users.items())
        own = f'username="{BROKER}" password="{self.users[BROKER]}"'
        plain = f"{_MODULES}.plain.PlainLoginModule required {own} {users};"
        modules = {
            "plain": plain,
            "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
            "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        }
        return {
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            **{f"{prefix}.{mechanism}.sasl.jaas.config": module for mechanism, module in modules.items()},
        }

    # For the proxies

    def proxy_settings(self) -> dict[str, Any]:
        """Over the settings of every proxy."""
        brokers: dict[str, Any] = {"security_protocol": self.protocol}
        settings: dict[str, Any] = {"brokers": brokers}
        if self.with_tls:
            brokers["tls"] = {"ca_file": str(self.ca_file)}
            settings["listeners"] = {"tls": {"certificate_file": str(self._config / "listener.pem")}}
        if self.with_sasl:
            brokers["sasl"] = {
                "mechanism": "SCRAM-SHA-512",
                "username": SERVICE,
                "password": self.users[SERVICE],
            }
        return settings

    # For clients

    def client_settings(self, user: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        """Return the settings for librdkafka, as confluent-kafka takes them; they work through a proxy and directly."""
        settings: dict[str, Any] = {"security.protocol": self.protocol}
        if self.with_tls:
            settings["ssl.ca.location"] = str(self.ca_file)
        if self.with_sasl:
            settings["sasl.mechanism"] = mechanism
            if mechanism == "OAUTHBEARER":
                settings["oauth_cb"] = lambda _: (unsecured_token(user), time.time() + OAUTH_LIFETIME_S)
            else:
                settings |= {"sasl.username": user, "sasl.password": self.users[user]}
        return settings

    def java_properties(self, user: str, mechanism: str = "SCRAM-SHA-256") -> Path:
        """Return a file with the settings for Java clients and Kafka's tools."""
        properties = {"security.protocol": self.protocol}
        if self.with_tls:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file)}
        if self.with_sasl:
            properties |= {"sasl.mechanism": mechanism, "sasl.jaas.config": self._client_module(user, mechanism)}
        path = self._config / f"client-{user}-{mechanism}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return path

    def _client_module(self, user: str, mechanism: str) -> str:
        if mechanism == "OAUTHBEARER":
            return f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        return f'{_MODULES}.{module} required username="{user}" password="{self.users[user]}";'

    def connect(self, host: str, port: int, timeout_seconds: float, user: str = ADMIN) -> socket.socket:
        """Return a connection that is ready for requests. Raises OSError and StackError."""
        connection = socket.create_connection((host, port), timeout=timeout_seconds)
        try:
            if self.with_tls:
                context = ssl.create_default_context(cafile=str(self.ca_file))
                connection = context.wrap_socket(connection, server_hostname=host)
            if self.with_sasl:
                _authenticate(connection, user, self.users[user])
        except BaseException:
            connection.close()
            raise
        return connection


def grant_service(security: StackSecurity, bootstrap: str) -> None:
    """Give the proxies' principal the rights that it can make use of (docs/security.md). Raises StackError."""
    from confluent_kafka import KafkaException
    from confluent_kafka import admin as module

    admin: Any = module  # the library's type hints leave out what it has of ACLs
    client = admin.AdminClient({"bootstrap.servers": bootstrap, **security.client_settings(ADMIN)})
    literal, allow = admin.ResourcePatternType.LITERAL, admin.AclPermissionType.ALLOW
    journal = Journal().topic
    operations = admin.AclOperation
    bindings = [
        admin.AclBinding(kind, name, literal, f"User:{SERVICE}", "*", operation, allow)
        for kind, name, operation in (
            (admin.ResourceType.TOPIC, journal, operations.CREATE),
            (admin.ResourceType.TOPIC, journal, operations.DESCRIBE_CONFIGS),
            (admin.ResourceType.TOPIC, journal, operations.WRITE),
            (admin.ResourceType.TOPIC, journal, operations.DELETE),
            (admin.ResourceType.TOPIC, "*", admin.AclOperation.DESCRIBE),
            (admin.ResourceType.TOPIC, "*", admin.AclOperation.READ),
            (admin.ResourceType.BROKER, "kafka-cluster", admin.AclOperation.DESCRIBE_CONFIGS),
            (admin.ResourceType.BROKER, "kafka-cluster", admin.AclOperation.ALTER),
            (admin.ResourceType.BROKER, "kafka-cluster", admin.AclOperation.CLUSTER_ACTION),
        )
    ]
    try:
        for made in client.create_acls(bindings, request_timeout=30).values():
            made.result(40)
    except KafkaException as error:
        raise StackError(f"the proxies' principal can't be given its rights: {error}") from error


def unsecured_token(user: str, lifetime_s: float = OAUTH_LIFETIME_S, **claims: Any) -> str:
    """Return a JWT without signature, as the brokers' OAuthBearerUnsecuredValidatorCallbackHandler takes it."""
    # That one has no patience with clocks and counts whole milliseconds: a token that comes in the millisecond in
    # which it was issued is "issued in the future".
    now_s = time.time() - 1
    parts: list[Mapping[str, Any]] = [
        {"alg": "none"},
        {"sub": user, "iat": now_s, "exp": now_s + lifetime_s, **claims},
    ]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, ""])


def _authenticate(connection: socket.socket, user: str, password: str) -> None:
    answer = _ask(connection, SASL_HANDSHAKE, HANDSHAKE_VERSION, build_handshake("PLAIN"))
    error_code = parse_handshake_response(answer).error_code
    if not error_code:
        token = Plain(user, password).respond(b"") or b""
        answer = _ask(connection, SASL_AUTHENTICATE, AUTHENTICATE_VERSION, build_authenticate(token))
        error_code = parse_authenticate_response(answer, AUTHENTICATE_VERSION).error_code
    if error_code:
        raise StackError(f"the broker does not let {user} in: error {error_code}")


def _ask(connection: socket.socket, api_key: int, api_version: int, body: bytes) -> memoryview:
    """Return the body of the answer; of APIs whose headers have no tagged fields."""
    request = request_header(api_key, api_version, _CORRELATION_ID, SERVICE) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    stream = connection.makefile("rb")
    size = stream.read(4)
    if len(size) < 4:
        raise ConnectionError("the broker closed the connection")
    return memoryview(stream.read(struct.unpack(">i", size)[0]))[_HEADER_BYTES:]
