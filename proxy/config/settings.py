"""The settings model: a YAML file, with environment variables over it.

Settings that a KIP names keep the KIP's name: `diskless.append.commit.interval.ms` in the file is the field
`diskless_append_commit_interval_ms` here. Every limit has its unit in its name.

An environment variable is `DISKLESS_PROXY_` and the field's path joined by two underscores, for example
`DISKLESS_PROXY_LISTENERS__BOOTSTRAP_PORT` or `DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS`.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from proxy.config.brokers import Brokers
from proxy.config.journal import Journal
from proxy.config.limits import FetchSettings, Limits
from proxy.config.listeners import Admin, Listeners
from proxy.config.prices import Prices
from proxy.config.racks import Fleet, Racks
from proxy.config.replication import Replication
from proxy.config.rollups import Rollups
from proxy.config.section import Reloadable, Texts, checked_patterns
from proxy.config.security import check_principals
from proxy.config.stores import Garbage, Redis, Storage
from proxy.config.transactions import Transactions


class Environment(EnvSettingsSource):
    """Source of settings from environment variables.

    A list of texts may be a single text, as in the file; otherwise it is JSON.
    """

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return the value of a variable. Raises ValueError if it has to be JSON and is not."""
        is_list = field is not None and field.annotation == tuple[str, ...]
        if is_list and not value.lstrip().startswith("["):
            return value
        return super().decode_complex_value(field_name, field, value)


class Settings(BaseSettings):
    """All settings of `diskless-proxy run --config FILE`."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix="DISKLESS_PROXY_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    rack: str = Field(min_length=1)
    """`broker.rack` of the brokers in this proxy's zone, and the rack of clients that name none."""
    proxy_id: str = ""
    """Name of the proxy, unique in the fleet; `rack/advertised_host:bootstrap_port` if empty."""
    listeners: Listeners = Listeners()
    additional_listeners: tuple[Listeners, ...] = ()
    """More listeners of the same process, for example one range of ports for each rack that it serves, or one range
    with TLS and one without. Each takes the settings of `listeners`, with another `name` or `rack`."""
    admin: Admin = Admin()
    brokers: Brokers
    redis: Redis
    storage: Storage
    journal: Journal = Journal()
    fleet: Fleet = Fleet()
    racks: Racks = Racks()
    limits: Limits = Limits()
    fetch: FetchSettings = FetchSettings()
    garbage: Garbage = Garbage()
    transactions: Transactions = Transactions()
    replication: Replication = Replication()
    prices: Prices = Prices()
    rollups: Rollups = Rollups()
    leader_choice: Literal["sticky", "round_robin", "partition_hash", "replica"] = "sticky"
    """The live broker of the client's rack that leads its diskless partitions. `sticky`: one broker for all of them, as
    long as it lives. `round_robin`: one broker for all of them, a different one in each Metadata (exactly KAFKA-19257).
    `partition_hash`: one broker for each partition, the same for all clients of the rack. `replica`: a replica of the
    partition, and everything except the leader is as the brokers say (KIP-1163 for older clients)."""
    kip1163_api: bool = False
    """Offer Metadata v14 and DescribeTopicPartitions v1 as KIP-1163 proposes them. The KIP is under discussion: a
    released version with that number may differ, and clients that know the released version must not meet this one."""
    workers: int = Field(default=1, ge=1, le=64)
    """Number of processes that share the ports and the work of this proxy, under one parent. More than one needs Linux.
    Limits hold for each process."""
    shared_principal: bool = False
    """Allow certificates of clients, or of the proxy towards the brokers, without SASL. All clients are then the same
    principal to the brokers."""
    certificate_reload_interval_ms: int = Field(default=10_000, ge=50)
    """How often certificates, keys and CAs are checked for changes."""
    certificate_warning_days: int = Field(default=14, ge=0)
    """Number of days before one of the proxy's certificates expires from which the log warns, once a day."""
    log_level: Reloadable[Literal["debug", "info", "warning", "error"]] = "info"
    """Level of the log, which goes to standard error."""
    log_format: Reloadable[Literal["console", "json"]] = "console"
    """Format of the log: for people, or one JSON object per line."""

    diskless_system_enable: Reloadable[bool] = True
    """`diskless.system.enable` (KIP-1163). If false, no diskless topic can be created; existing ones continue."""
    default_diskless_topics: Reloadable[Texts] = ()
    """Regular expressions: topics whose whole name matches one are created diskless unless `diskless.enable=false` is
    requested. This includes topics that are created on demand (`auto.create.topics.enable`). Use it for tools that
    check config names themselves, as `kafka-topics` does."""
    enable_under_replicated_topic_creation: Reloadable[bool] = True
    """`enable.under.replicated.topic.creation` (KIP-409). Brokers reject topics and partitions with more replicas than
    there are registered brokers. The proxy then creates them on the live brokers, at least `min.insync.replicas` of
    them, and adds the missing replicas when brokers join. If false, the brokers' rejection stands. Topics that were
    created in this way before are still completed."""
    diskless_storage_class_name: str = ""
    """`diskless.storage.class.name` (KIP-1163): `file`, `s3` or `module:Class`. If empty, `storage.url` decides."""
    diskless_storage_class_path: str = ""
    """`diskless.storage.class.path` (KIP-1163): another name of `diskless.storage.class.name`, for `module:Class`.
    Python has no class path: install the module in the proxy's environment."""
    diskless_append_commit_interval_ms: Reloadable[int] = Field(default=250, ge=1)
    """`diskless.append.commit.interval.ms` (KIP-1163): the longest time that a batch waits in the WAL buffer. A topic's
    `diskless.append.latency.ms` may be longer."""
    diskless_append_puts_per_second: Reloadable[float] = Field(default=0, ge=0, le=1000)
    """`diskless.append.puts.per.second`: the budget for uploads of segments before the commit interval is over. A
    segment is uploaded as soon as the budget has a PUT left, so little traffic does not wait for the interval. Up to 8
    unused PUTs are saved up. With 0 the budget is 1000 ÷ the interval, which is what the interval alone costs at most.
    Full segments are uploaded in any case."""
    diskless_append_underway: Reloadable[int] = Field(default=1, ge=0, le=64)
    """`diskless.append.underway`: a segment is uploaded before the commit interval is over only if fewer segments than
    this are being uploaded or committed. With 0 it always waits for the interval, or until it is full."""
    diskless_append_buffer_max_bytes: Reloadable[int] = Field(default=4_194_304, ge=1024)
    """`diskless.append.buffer.max.bytes` (KIP-1163): the WAL buffer is uploaded when it holds this much."""
    diskless_append_max_uploads: Reloadable[int] = Field(default=16, ge=1)
    """Number of segments that are uploaded at the same time."""
    diskless_append_commit_timeout_ms: Reloadable[int] = Field(default=30_000, ge=1)
    """How long a commit without an answer is retried. After that, producers get a retriable error, because the outcome
    is unknown."""
    out_of_order_hold_ms: Reloadable[int] = Field(default=2_000, ge=0)
    """How long a batch waits if its sequence is beyond the expected one: its producer may have sent the batches between
    to another proxy. After that it is rejected with OUT_OF_ORDER_SEQUENCE_NUMBER. With 0 it does not wait."""
    max_held_batches: Reloadable[int] = Field(default=1_000, ge=0)
    """Maximum number of batches that wait in this way at a time, of all producers. Further batches are rejected at
    once."""
    max_decompressed_batch_bytes: Reloadable[int] = Field(default=33_554_432, ge=1024)
    """Maximum decompressed size of a batch that has to be decompressed. The reason is its topic's `compression.type`,
    `message.timestamp.before.max.ms` or `after.max.ms`, or a `cleanup.policy` with `compact`. A larger batch is
    rejected with MESSAGE_TOO_LARGE. If its topic's `max.message.bytes` is larger, that is the limit."""
    max_prepared_batch_records: Reloadable[int] = Field(default=100_000, ge=1)
    """Maximum number of records of a batch that has to be decompressed, because each record is checked. A batch with
    more is rejected with MESSAGE_TOO_LARGE, and Java's producer then splits it."""
    compression_threads: int = Field(default=2, ge=1, le=64)
    """Number of batches that are decompressed or compressed at the same time."""
    log_retention_check_interval_ms: Reloadable[int] = Field(default=300_000, ge=10)
    """`log.retention.check.interval.ms` of the brokers: how often retention of diskless topics is applied."""
    default_retention_ms: Reloadable[int] = Field(default=604_800_000, ge=-1)
    """`retention.ms` of diskless topics that set none, as long as the proxy's principal may not read the brokers' own
    default. Topics that set no `cleanup.policy` count as `delete` then."""
    authorization_cache_ms: Reloadable[int] = Field(default=5_000, ge=0)
    """How long a connection caches what its client may do with a diskless topic."""
    sasl_oauthbearer_sub_claim_name: str = Field(default="sub", min_length=1)
    """`sasl.oauthbearer.sub.claim.name` of the brokers: the claim that is the user, for quotas by user."""
    producer_id_expiration_ms: int = Field(default=86_400_000, ge=1000)
    """`producer.id.expiration.ms` of the brokers."""
    producer_id_expiration_check_interval_ms: Reloadable[int] = Field(default=600_000, ge=10)
    """`producer.id.expiration.check.interval.ms` of the brokers: how often producers that have expired are removed."""
    producer_batches_remembered: int = Field(default=5, ge=5, le=100)
    """Number of batches per producer and partition whose duplicates are recognised (KIP-1269)."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources: the environment takes precedence over the file."""
        return Environment(settings_cls), init_settings

    @field_validator("default_diskless_topics")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_patterns(value)

    @field_validator("diskless_storage_class_path")
    @classmethod
    def _names_a_class(cls, value: str) -> str:
        if value and not re.fullmatch(r"[\w.]+:\w+", value):
            raise ValueError(
                f"{value!r} is not module:Class; install the module next to the proxy, and name module and class"
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _racks_by_their_own_names(cls, values: Any) -> Any:
        """Replace aliases (`racks.aliases`) by the brokers' names of racks, as far as the values have their types."""
        aliases = _within(values, "racks", "aliases")
        if not isinstance(aliases, dict):
            return values

        def renamed(section: Any) -> Any:
            rack = _within(section, "rack")
            return {**section, "rack": aliases[rack]} if isinstance(rack, str) and rack in aliases else section

        values = renamed(values)
        for name in ("listeners", "additional_listeners"):
            sections = _within(values, name)
            if isinstance(sections, dict):
                values = {**values, name: renamed(sections)}
            elif isinstance(sections, list | tuple):
                values = {**values, name: [renamed(section) for section in sections]}
        return values

    @model_validator(mode="after")
    def _one_storage_class(self) -> Settings:
        name, path = self.diskless_storage_class_name, self.diskless_storage_class_path
        if name and path and name != path:
            raise ValueError(
                f"diskless.storage.class.name is {name!r} and diskless.storage.class.path is {path!r}; set one of them"
            )
        return self

    @model_validator(mode="after")
    def _listeners_differ(self) -> Settings:
        seen: set[tuple[str, str]] = set()
        ports: dict[tuple[str, int], str] = {}
        for listeners in self.all_listeners:
            where = f"listeners {listeners.name!r} of rack {self.rack_of(listeners)!r}"
            if (listeners.name, self.rack_of(listeners)) in seen:
                raise ValueError(f"{where} exist twice; give additional_listeners another name or rack")
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
        """Return `listeners` and the additional listeners."""
        return (self.listeners, *self.additional_listeners)

    def section_of(self, listeners: Listeners) -> str:
        """Return the name of the listeners' section in the file, for error texts."""
        number = self.all_listeners.index(listeners)
        return f"additional_listeners[{number - 1}]" if number else "listeners"

    def rack_of(self, listeners: Listeners) -> str:
        """Return the rack of clients that connect to these listeners and name none."""
        return listeners.rack or self.rack

    @property
    def storage_class(self) -> str:
        """Return the class of the storage, `file` or `s3`; empty if `storage.url` decides."""
        return self.diskless_storage_class_name or self.diskless_storage_class_path

    @property
    def identity(self) -> str:
        """Return this proxy's name in the fleet."""
        return self.proxy_id or f"{self.rack}/{self.listeners.client_host}:{self.listeners.bootstrap_port}"


def _within(values: Any, *names: str) -> Any:
    """Return what sections have under these names; None if there is none, or a section is not one."""
    for name in names:
        values = values.get(name) if isinstance(values, dict) else None
    return values
