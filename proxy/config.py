"""The one settings model: a YAML file, with environment variables over it.

Settings that a KIP names keep the KIP's name: `diskless.append.commit.interval.ms` in the file is the field
`diskless_append_commit_interval_ms` here. Every limit stands in this file with its unit in its name.

An environment variable is `DISKLESS_PROXY_` and the field's path joined by two underscores, for example
`DISKLESS_PROXY_LISTENERS__BOOTSTRAP_PORT` or `DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS`.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from proxy.config_security import (
    BrokerSasl,
    BrokerTls,
    ListenerTls,
    SecurityProtocol,
    check_broker_security,
    check_principals,
)

Port = int


class ConfigError(Exception):
    """The configuration can't be used; the text names the setting, the cause and the remedy."""


def parse_node_ids(text: str) -> tuple[int, ...]:
    """`"1-3,7"` as `(1, 2, 3, 7)`. Raises ValueError, naming what can't be read."""
    nodes: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"{part.strip()!r} is neither a node ID nor a range such as 1-9")
        nodes.update(range(int(first), int(last or first) + 1))
    if not nodes:
        raise ValueError("names no node ID")
    return tuple(sorted(nodes))


def parse_address(text: str) -> tuple[str, int]:
    """`"host:port"` or `"[v6]:port"` as a pair. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return host.strip("[]"), int(port)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Listeners(_Section):
    """Where clients connect: a bootstrap port, and `broker_port_start + node_id` for every broker."""

    name: str = Field(default="default", min_length=1)
    """As the listener names of brokers: clients that come in by one name are told addresses of that name, of any
    proxy."""
    rack: str = ""
    """The rack of clients that come in here and name none; the proxy's own where empty."""
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for all."""
    advertised_host: str = ""
    """Host that clients are told; `host` where empty."""
    bootstrap_port: Port = Field(default=19092, ge=1, le=65535)
    """For clients' `bootstrap.servers`; any live broker answers there."""
    broker_port_start: Port = Field(default=19100, ge=1, le=65535)
    """Broker N is at this port plus N."""
    broker_node_ids: str = "1-9"
    """Node IDs that get a listener, for example `1-9` or `0-5,100-105`. All are bound at start."""
    tls: ListenerTls | None = None
    """TLS on all ports of the range; plain text where it is missing."""

    @field_validator("broker_node_ids")
    @classmethod
    def _readable(cls, value: str) -> str:
        parse_node_ids(value)
        return value

    @model_validator(mode="after")
    def _ports_fit(self) -> Listeners:
        highest = self.broker_port_start + max(parse_node_ids(self.broker_node_ids))
        if highest > 65535:
            raise ValueError(f"broker_port_start plus the highest of broker_node_ids is {highest}, above port 65535")
        if self.bootstrap_port in {self.broker_port_start + node for node in self.node_ids}:
            raise ValueError(f"bootstrap_port {self.bootstrap_port} is also the port of a broker; move either range")
        return self

    @property
    def client_host(self) -> str:
        """The host that clients are told."""
        return self.advertised_host or self.host

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The node IDs of `broker_node_ids`, ascending."""
        return parse_node_ids(self.broker_node_ids)

    @property
    def ports(self) -> dict[int | None, int]:
        """The port of each node ID; of the bootstrap listener under None."""
        return {None: self.bootstrap_port} | {node: self.broker_port_start + node for node in self.node_ids}


class Admin(_Section):
    """The HTTP port for `/healthz`, `/readyz` and `/metrics`."""

    host: str = "127.0.0.1"
    """Loopback unless told otherwise: the port has no authentication."""
    port: int = Field(default=19080, ge=0, le=65535)
    """0 picks a free one."""


class Brokers(_Section):
    """The existing brokers."""

    bootstrap: tuple[str, ...] = Field(min_length=1)
    """`host:port` of brokers to start from."""
    connect_timeout_ms: int = Field(default=5_000, ge=1)
    """For one broker's address."""
    request_timeout_ms: int = Field(default=30_000, ge=1)
    """For requests of the proxy's own."""
    metadata_refresh_ms: int = Field(default=5_000, ge=10)
    """How often the list of live brokers is asked for, beside what clients' Metadata shows."""
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


class Redis(_Section):
    """The coordinator's store: Redis 7 or Valkey 8 and newer, `noeviction`, append-only file on."""

    url: str = Field(repr=False)
    """`redis://[user:password@]host:port/db`, `rediss://` for TLS, or `unix://`."""
    shards: int = Field(default=16, ge=1, le=4096)
    """Number of hash tags that partitions map to. Fixed for the life of the data."""
    timeout_ms: int = Field(default=3_000, ge=1)
    """For one call."""
    max_connections: int = Field(default=32, ge=2)
    """Calls at a time."""
    require_append_only: bool = True
    """Refuse a store that keeps acknowledged commits in memory only."""

    @field_validator("url")
    @classmethod
    def _scheme(cls, value: str) -> str:
        if urlsplit(value).scheme not in {"redis", "rediss", "unix"}:
            raise ValueError("use redis://host:port/db, rediss://… or unix://…")
        return value


class Storage(_Section):
    """Where WAL segments are kept. `url` is `file:///dir` or `s3://bucket/prefix`."""

    url: str
    """`file:///directory` or `s3://bucket/prefix`."""
    endpoint_url: str = ""
    """Of an S3-compatible store; the provider's own where empty."""
    region: str = "us-east-1"
    """Of the bucket."""
    access_key_id: str = ""
    """With `secret_access_key`; better left to the AWS chain."""
    secret_access_key: str = Field(default="", repr=False)
    """Where both keys are empty, the usual AWS chain (environment, profile, instance role) is asked."""
    request_timeout_ms: int = Field(default=10_000, ge=1)
    """For each attempt."""
    max_attempts: int = Field(default=4, ge=1)
    """Of one upload or fetch, before it has failed."""
    max_connections: int = Field(default=32, ge=1)
    """To the store, at a time."""


class Fleet(_Section):
    """Heartbeats of the proxies in the coordinator's store."""

    heartbeat_interval_ms: int = Field(default=1_000, ge=10)
    """Between two heartbeats."""
    lease_ms: int = Field(default=5_000, ge=50)
    """A proxy that has not been heard of for this long is no longer waited for, and itself serves no Produce of
    topics that it has not already seen to be classic."""
    create_topic_timeout_ms: int = Field(default=15_000, ge=1)
    """How long CreateTopics of a diskless topic waits for every live proxy to acknowledge the reservation."""
    lifelines: int = Field(default=0, ge=0, le=100)
    """Proxies of other racks that Metadata names as further brokers, which lead nothing, to clients that name their
    rack: for old clients, which never bootstrap again, when their rack's last proxy dies. docs/racks.md tells the
    cost."""

    @model_validator(mode="after")
    def _lease_outlives_beats(self) -> Fleet:
        if self.lease_ms < 2 * self.heartbeat_interval_ms:
            raise ValueError(
                "lease_ms must be at least twice heartbeat_interval_ms, or one lost heartbeat ends a lease"
            )
        return self


class Racks(_Section):
    """How the rack of a client is found, beside what `listeners.rack` and `rack` say."""

    client_id_keys: tuple[str, ...] = ()
    """Keys that name the rack in a client ID as `diskless_rack_id` does, which comes first: other systems' hints, for
    example `["diskless_az", "ws_az", "warpstream_az", "automq_az"]`."""
    by_network: dict[str, str] = {}
    """Racks of clients by their address, `{"10.1.0.0/16": "rack-a"}`; the longest prefix decides, and comes before
    the rack of the port."""
    max_learned_clients: int = Field(default=10_000, ge=0)
    """Clients (address and client ID) whose rack is remembered from a Fetch or a group heartbeat; 0 learns nothing."""
    learned_expiry_ms: int = Field(default=900_000, ge=1)
    """How long a learned rack is remembered after it was last said."""

    @field_validator("client_id_keys")
    @classmethod
    def _keys(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for key in value:
            if not re.fullmatch(r"[\w.-]+", key):
                raise ValueError(f"{key!r} is no key: use letters, digits, dots, dashes and underscores")
        return value

    @field_validator("by_network")
    @classmethod
    def _networks(cls, value: dict[str, str]) -> dict[str, str]:
        for network, rack in value.items():
            try:
                ip_network(network)
            except ValueError as error:
                raise ValueError(f"{network!r} is no network such as 10.1.0.0/16: {error}") from error
            if not rack:
                raise ValueError(f"the rack of {network} is empty")
        return value


class Limits(_Section):
    """What one client, or all of them, may take."""

    max_frame_bytes: int = Field(default=104_857_600, ge=1024)
    """`socket.request.max.bytes` of the brokers."""
    max_connections: int = Field(default=10_000, ge=1)
    """Client connections in all. Each takes two file descriptors; where the hard limit of open files allows fewer, it
    is lowered at the start, with a log line."""
    max_connections_per_ip: int = Field(default=10_000, ge=1)
    """Client connections from one address."""
    idle_timeout_ms: int = Field(default=600_000, ge=100)
    """`connections.max.idle.ms` of the brokers: a connection that neither asks nor is answered, nor waits for an
    answer, for this long is closed."""
    frame_timeout_ms: int = Field(default=60_000, ge=100)
    """From the first bytes of a request to its last, while the proxy is reading."""
    contended_frame_timeout_ms: int = Field(default=5_000, ge=100)
    """The same while other requests wait for memory: one that announces much and sends little is cut off sooner."""
    write_timeout_ms: int = Field(default=600_000, ge=100)
    """A client that takes none of the bytes that it is owed for this long is cut off; one that is being closed has this
    long for its last ones, at most."""
    write_buffer_bytes: int = Field(default=65_536, ge=1024)
    """Of answers that a client has not taken, and of requests that a broker has not: above it, reading from the other
    side stops. The frame that goes above it is let in whole where it is not streamed."""
    tcp_keepalive_idle_s: int = Field(default=60, ge=1)
    """A client's or broker's machine that has said nothing for this long is asked whether it is still there."""
    tcp_keepalive_interval_s: int = Field(default=10, ge=1)
    """Until it is asked again."""
    tcp_keepalive_probes: int = Field(default=6, ge=1)
    """How often it is asked before the connection is taken as dead."""
    max_in_flight_requests: int = Field(default=64, ge=1)
    """Requests of one connection that wait for an answer, before reading from it stops."""
    max_request_bytes_in_memory: int = Field(default=536_870_912, ge=1024)
    """All held requests and WAL buffers of the process; reading stops above it."""
    max_response_bytes_per_connection: int = Field(default=67_108_864, ge=1024)
    """Answers of one connection that wait for an earlier one's, whoever gives them; reading from broker and client
    stops above it. One Fetch of diskless topics answers no more than this either."""
    tls_handshake_timeout_ms: int = Field(default=10_000, ge=100)
    """From an accepted connection to the end of its TLS handshake."""
    drain_timeout_ms: int = Field(default=25_000, ge=0)
    """From SIGTERM to the end of the process, at most."""
    drain_pause_ms: int = Field(default=250, ge=0)
    """In a drain, between closing the connections to one broker and those to the next: so long a client has to ask on
    another connection where its brokers are now. All pauses together take eight times this at most."""


class FetchSettings(_Section):
    """Reads of diskless topics."""

    max_bytes: int = Field(default=57_671_680, ge=1024)
    """`fetch.max.bytes` of the brokers."""
    cache_bytes: int = Field(default=268_435_456, ge=1024)
    """Segment blocks of all partitions that are kept in memory."""
    block_bytes: int = Field(default=8_388_608, ge=4096)
    """Segments are read in aligned blocks of this size."""
    mixed_wait_ms: int = Field(default=50, ge=1)
    """Longest wait for the brokers' half of a Fetch that names classic and diskless topics, per round."""


class Garbage(_Section):
    """Objects of the diskless topics that nobody needs any more. One proxy of the fleet looks for them."""

    interval_ms: int = Field(default=30_000, ge=10)
    """How often segments whose last record is gone are looked for."""
    grace_ms: int = Field(default=60_000, ge=0)
    """From the moment when nobody can find a segment any more to its deletion: longer than any Fetch takes."""
    orphan_sweep_interval_ms: int = Field(default=3_600_000, ge=10)
    """How often all objects are listed, to find those that were uploaded and never committed."""
    orphan_age_ms: int = Field(default=3_600_000, ge=0)
    """Younger objects are left alone: their commit may be under way."""


class Settings(BaseSettings):
    """Everything that `diskless-proxy run --config FILE` can be told."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        env_prefix="DISKLESS_PROXY_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    rack: str = Field(min_length=1)
    """`broker.rack` of the brokers beside this proxy, and the rack of clients that name none."""
    proxy_id: str = ""
    """Unique in the fleet; `rack/advertised_host:bootstrap_port` where empty."""
    listeners: Listeners = Listeners()
    additional_listeners: tuple[Listeners, ...] = ()
    """More listeners of the same process, for example one range of ports for each rack that it serves, or one with TLS
    beside one without: each takes what `listeners` takes, with a `name` and `rack` that differ."""
    admin: Admin = Admin()
    brokers: Brokers
    redis: Redis
    storage: Storage
    fleet: Fleet = Fleet()
    racks: Racks = Racks()
    limits: Limits = Limits()
    fetch: FetchSettings = FetchSettings()
    garbage: Garbage = Garbage()
    leader_choice: Literal["sticky", "round_robin", "partition_hash", "replica"] = "sticky"
    """Which live broker of the client's rack leads its diskless partitions: `sticky`, one for all of them, kept as long
    as it lives; `round_robin`, one for all of them, another with each Metadata (KAFKA-19257 to the letter);
    `partition_hash`, one for each partition, the same for all clients of the rack; `replica`, a replica of the
    partition, and all but the leader is as the brokers say (KIP-1163 for older clients)."""
    kip1163_api: bool = False
    """Offer Metadata v14 and DescribeTopicPartitions v1 as KIP-1163 proposes them. The KIP is under discussion: a
    released version of that number may differ, and clients that know it must not meet this one."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that share the ports and the work of this proxy, under one parent; more than one needs Linux. Limits
    hold for each of them."""
    shared_principal: bool = False
    """Allow certificates of clients, or of the proxy towards the brokers, without SASL: to the brokers all clients are
    then the same principal."""
    certificate_reload_interval_ms: int = Field(default=10_000, ge=50)
    """How often certificates, keys and CAs are looked at for changes."""
    certificate_warning_days: int = Field(default=14, ge=0)
    """So long before one of the proxy's certificates ends the log warns of it, once a day."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged, to standard error."""
    log_format: Literal["console", "json"] = "console"
    """For people, or one JSON object a line."""

    diskless_system_enable: bool = True
    """`diskless.system.enable` (KIP-1163): off, no diskless topic can be created; those that exist go on."""
    default_diskless_topics: tuple[str, ...] = ()
    """Regular expressions: topics whose whole name matches one are created diskless unless `diskless.enable=false` is
    asked for. For tools that check config names themselves, as `kafka-topics` does."""
    diskless_storage_class_name: str = ""
    """`diskless.storage.class.name` (KIP-1163): `file`, `s3` or `module:Class`; told by `storage.url` where empty."""
    diskless_append_commit_interval_ms: int = Field(default=250, ge=1)
    """`diskless.append.commit.interval.ms` (KIP-1163): the longest a batch waits in the WAL buffer."""
    diskless_append_buffer_max_bytes: int = Field(default=4_194_304, ge=1024)
    """`diskless.append.buffer.max.bytes` (KIP-1163): the WAL buffer is uploaded when it holds this much."""
    diskless_append_max_uploads: int = Field(default=16, ge=1)
    """Segments that are uploaded at the same time."""
    diskless_append_commit_timeout_ms: int = Field(default=30_000, ge=1)
    """How long a commit that gets no answer is tried again before the producers are told that nobody knows."""
    log_retention_check_interval_ms: int = Field(default=300_000, ge=10)
    """`log.retention.check.interval.ms` of the brokers: how often retention of diskless topics is applied."""
    default_retention_ms: int = Field(default=604_800_000, ge=-1)
    """`retention.ms` of diskless topics that set none, as long as the brokers' own default can't be asked."""
    authorization_cache_ms: int = Field(default=5_000, ge=0)
    """How long a connection remembers what its client may do with a diskless topic."""
    sasl_oauthbearer_sub_claim_name: str = Field(default="sub", min_length=1)
    """`sasl.oauthbearer.sub.claim.name` of the brokers: the claim that is the user, for quotas by user."""
    producer_id_expiration_ms: int = Field(default=86_400_000, ge=1000)
    """`producer.id.expiration.ms` of the brokers."""
    producer_batches_remembered: int = Field(default=5, ge=5, le=100)
    """Batches per producer and partition whose duplicates are recognised (KIP-1269)."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment over file."""
        return env_settings, init_settings

    @field_validator("default_diskless_topics")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return value

    @model_validator(mode="after")
    def _listeners_differ(self) -> Settings:
        seen: set[tuple[str, str]] = set()
        ports: dict[tuple[str, int], str] = {}
        for listeners in self.all_listeners:
            where = f"listeners {listeners.name!r} of rack {self.rack_of(listeners)!r}"
            if (listeners.name, self.rack_of(listeners)) in seen:
                raise ValueError(f"{where} are there twice; give additional_listeners another name or rack")
            seen.add((listeners.name, self.rack_of(listeners)))
            for port in listeners.ports.values():
                if (listeners.host, port) in ports:
                    raise ValueError(
                        f"port {port} is in {ports[listeners.host, port]} and in {where}; move either range"
                    )
                ports[listeners.host, port] = where
        return self

    @model_validator(mode="after")
    def _principals(self) -> Settings:
        if not self.shared_principal:
            certificate = self.brokers.tls.certificate_file if self.brokers.tls is not None else ""
            listeners = {self.section_of(one): one.tls for one in self.all_listeners}
            check_principals(self.brokers.security_protocol, certificate, listeners)
        return self

    @property
    def all_listeners(self) -> tuple[Listeners, ...]:
        """`listeners` and the additional ones."""
        return (self.listeners, *self.additional_listeners)

    def section_of(self, listeners: Listeners) -> str:
        """The name of its section in the file, for error texts."""
        number = self.all_listeners.index(listeners)
        return f"additional_listeners[{number - 1}]" if number else "listeners"

    def rack_of(self, listeners: Listeners) -> str:
        """The rack of clients that come in there and name none."""
        return listeners.rack or self.rack

    @property
    def identity(self) -> str:
        """This proxy's name in the fleet."""
        return self.proxy_id or f"{self.rack}/{self.listeners.client_host}:{self.listeners.bootstrap_port}"


def load_settings(path: Path) -> Settings:
    """Read `path`, put the environment over it, check it. Raises ConfigError with one line per finding."""
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}; pass an existing file to --config") from error
    except yaml.YAMLError as error:
        # Not the whole text of the error: it quotes lines of the file, which may hold a secret. Nor its cause.
        raise ConfigError(f"{path} is not YAML: {_explain_yaml(error)}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no settings; see docs/configuration.md for an example")
    try:
        return Settings(**_field_names(data))
    except ValidationError as error:
        raise ConfigError(_explain(path, error)) from None
    except SettingsError as error:
        raise ConfigError(f"the environment: {error}; write sections there as JSON, or setting by setting") from None


def _field_names(data: dict[str, Any]) -> dict[str, Any]:
    """Kafka's dotted setting names as field names."""
    return {str(key).replace(".", "_").replace("-", "_"): value for key, value in data.items()}


def _explain(path: Path, error: ValidationError) -> str:
    findings = []
    for finding in error.errors(include_url=False):
        name = ".".join(str(part) for part in finding["loc"]) or "settings"
        if finding["type"] == "extra_forbidden":
            findings.append(f"{name}: no such setting; see docs/configuration.md for the names")
        elif finding["type"] == "missing":
            findings.append(f"{name}: is missing; add it, see docs/configuration.md for an example")
        else:
            findings.append(f"{name}: {finding['msg'].removeprefix('Value error, ')}{_shown(name, finding['input'])}")
    return f"{path}: " + "; ".join(findings)


_SECRETIVE = ("secret", "password", "token", "sasl", "tls")
"""In the name of a setting: its value is not shown, not even where it should have been a section."""


def _shown(name: str, value: object) -> str:
    """What was found, where it can be no secret: a section may hold one, as may a URL before its `@`."""
    if not isinstance(value, (str, int, float)) or any(word in name for word in _SECRETIVE):
        return ""
    return f" (it is {re.sub(r'(?<=//)[^/]*@', '***@', value) if isinstance(value, str) else value!r})"


def _explain_yaml(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}; mend it there"
    return f"{type(error).__name__}; write it as YAML in UTF-8"
