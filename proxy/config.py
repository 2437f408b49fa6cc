"""The one settings model: a YAML file, with environment variables over it.

Settings that a KIP names keep the KIP's name: `diskless.append.commit.interval.ms` in the file is the field
`diskless_append_commit_interval_ms` here. Every limit stands in this file with its unit in its name.

An environment variable is `DISKLESS_PROXY_` and the field's path joined by two underscores, for example
`DISKLESS_PROXY_LISTENERS__BOOTSTRAP_PORT` or `DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

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

    @field_validator("bootstrap")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            parse_address(address)
        return value


class Redis(_Section):
    """The coordinator's store: Redis 7 or Valkey 8 and newer, `noeviction`, append-only file on."""

    url: str
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

    @model_validator(mode="after")
    def _lease_outlives_beats(self) -> Fleet:
        if self.lease_ms < 2 * self.heartbeat_interval_ms:
            raise ValueError(
                "lease_ms must be at least twice heartbeat_interval_ms, or one lost heartbeat ends a lease"
            )
        return self


class Limits(_Section):
    """What one client, or all of them, may take."""

    max_frame_bytes: int = Field(default=104_857_600, ge=1024)
    """`socket.request.max.bytes` of the brokers."""
    max_connections: int = Field(default=10_000, ge=1)
    """Client connections in all."""
    max_connections_per_ip: int = Field(default=10_000, ge=1)
    """Client connections from one address."""
    idle_timeout_ms: int = Field(default=600_000, ge=100)
    """`connections.max.idle.ms` of the brokers."""
    frame_timeout_ms: int = Field(default=60_000, ge=100)
    """From the first bytes of a request to its last, while the proxy is reading."""
    max_in_flight_requests: int = Field(default=64, ge=1)
    """Requests of one connection that wait for an answer, before reading from it stops."""
    max_request_bytes_in_memory: int = Field(default=536_870_912, ge=1024)
    """All held requests and WAL buffers of the process; reading stops above it."""
    max_response_bytes_per_connection: int = Field(default=67_108_864, ge=1024)
    """Answers of one connection that wait for an earlier one's; reading from the broker stops above it."""
    drain_timeout_ms: int = Field(default=25_000, ge=0)
    """From SIGTERM to the end of the process, at most."""


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
    limits: Limits = Limits()
    fetch: FetchSettings = FetchSettings()
    leader_choice: Literal["sticky"] = "sticky"
    """Which live broker of the client's rack leads its diskless partitions."""
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
    authorization_cache_ms: int = Field(default=5_000, ge=0)
    """How long a connection remembers what its client may do with a diskless topic."""
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

    @property
    def all_listeners(self) -> tuple[Listeners, ...]:
        """`listeners` and the additional ones."""
        return (self.listeners, *self.additional_listeners)

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
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no settings; see docs/configuration.md for an example")
    try:
        return Settings(**_field_names(data))
    except ValidationError as error:
        raise ConfigError(_explain(path, error)) from error


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
            value = "" if "secret" in name else f" (it is {finding['input']!r})"
            findings.append(f"{name}: {finding['msg'].removeprefix('Value error, ')}{value}")
    return f"{path}: " + "; ".join(findings)
