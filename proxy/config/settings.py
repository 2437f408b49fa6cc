"""The one settings model: a YAML file, with environment variables over it.

Settings that a KIP names keep the KIP's name: `diskless.append.commit.interval.ms` in the file is the field
`diskless_append_commit_interval_ms` here. Every limit stands in this file with its unit in its name.

An environment variable is `DISKLESS_PROXY_` and the field's path joined by two underscores, for example
`DISKLESS_PROXY_LISTENERS__BOOTSTRAP_PORT` or `DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS`."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from proxy.config.brokers import Brokers
from proxy.config.limits import FetchSettings, Limits
from proxy.config.listeners import Admin, Listeners
from proxy.config.prices import Prices
from proxy.config.racks import Fleet, Racks
from proxy.config.replication import Replication
from proxy.config.rollups import Rollups
from proxy.config.section import Reloadable, Texts, checked_patterns
from proxy.config.security import check_principals
from proxy.config.stores import Garbage, Redis, Storage


class Environment(EnvSettingsSource):
    """Environment variables. A list of texts may be one text alone, as in the file; else it is JSON."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return what a variable says. Raises ValueError for what is not JSON where it has to be."""
        is_list = field is not None and field.annotation == tuple[str, ...]
        if is_list and not value.lstrip().startswith("["):
            return value
        return super().decode_complex_value(field_name, field, value)


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
    """`broker.rack` of the brokers in this proxy's zone, and the rack of clients that name none."""
    proxy_id: str = ""
    """Unique in the fleet; `rack/advertised_host:bootstrap_port` where empty."""
    listeners: Listeners = Listeners()
    additional_listeners: tuple[Listeners, ...] = ()
    """More listeners of the same process, for example one range of ports for each rack that it serves, or one with TLS
    and one without: each takes what `listeners` takes, with a `name` and `rack` that differ."""
    admin: Admin = Admin()
    brokers: Brokers
    redis: Redis
    storage: Storage
    fleet: Fleet = Fleet()
    racks: Racks = Racks()
    limits: Limits = Limits()
    fetch: FetchSettings = FetchSettings()
    garbage: Garbage = Garbage()
    replication: Replication = Replication()
    prices: Prices = Prices()
    rollups: Rollups = Rollups()
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
    log_level: Reloadable[Literal["debug", "info", "warning", "error"]] = "info"
    """What is logged, to standard error."""
    log_format: Reloadable[Literal["console", "json"]] = "console"
    """For people, or one JSON object a line."""

    diskless_system_enable: Reloadable[bool] = True
    """`diskless.system.enable` (KIP-1163): off, no diskless topic can be created; those that exist go on."""
    default_diskless_topics: Reloadable[Texts] = ()
    """Regular expressions: topics whose whole name matches one are created diskless unless `diskless.enable=false` is
    asked for, also those that come on demand (`auto.create.topics.enable`). For tools that check config names
    themselves, as `kafka-topics` does."""
    enable_under_replicated_topic_creation: Reloadable[bool] = True
    """`enable.under.replicated.topic.creation` (KIP-409): topics and partitions that the brokers refuse because fewer
    brokers are registered than they are to have replicas are made with the live ones, at least `min.insync.replicas` of
    them, and get the missing replicas when brokers join. Off, the brokers' refusal stands; topics that were made so
    before are still completed."""
    diskless_storage_class_name: str = ""
    """`diskless.storage.class.name` (KIP-1163): `file`, `s3` or `module:Class`; if empty, `storage.url` decides."""
    diskless_storage_class_path: str = ""
    """`diskless.storage.class.path` (KIP-1163): another name of that setting, for `module:Class`. There is no class
    path in Python: install the module in the proxy's environment."""
    diskless_append_commit_interval_ms: Reloadable[int] = Field(default=250, ge=1)
    """`diskless.append.commit.interval.ms` (KIP-1163): the longest a batch waits in the WAL buffer."""
    diskless_append_buffer_max_bytes: Reloadable[int] = Field(default=4_194_304, ge=1024)
    """`diskless.append.buffer.max.bytes` (KIP-1163): the WAL buffer is uploaded when it holds this much."""
    diskless_append_max_uploads: Reloadable[int] = Field(default=16, ge=1)
    """Segments that are uploaded at the same time."""
    diskless_append_commit_timeout_ms: Reloadable[int] = Field(default=30_000, ge=1)
    """How long a commit without an answer is retried, before producers get a retriable error because its outcome is
    unknown."""
    out_of_order_hold_ms: Reloadable[int] = Field(default=2_000, ge=0)
    """How long a batch whose sequence is beyond the one expected waits for what comes between, which its producer may
    have sent to another proxy, before it is refused with OUT_OF_ORDER_SEQUENCE_NUMBER; 0 for no wait."""
    max_held_batches: Reloadable[int] = Field(default=1_000, ge=0)
    """Batches that wait so at a time, of all producers; one beyond them is refused at once."""
    max_decompressed_batch_bytes: Reloadable[int] = Field(default=33_554_432, ge=1024)
    """What a batch may hold that has to be decompressed, for the sake of its topic's `compression.type`,
    `message.timestamp.before.max.ms` or `after.max.ms`, or a `cleanup.policy` with `compact`; a larger one is refused
    with MESSAGE_TOO_LARGE. Where its topic's `max.message.bytes` is more, that counts."""
    max_prepared_batch_records: Reloadable[int] = Field(default=100_000, ge=1)
    """Records of a batch that has to be decompressed so: each is looked at. One with more is refused with
    MESSAGE_TOO_LARGE, at which Java's producer splits it."""
    compression_threads: int = Field(default=2, ge=1, le=64)
    """Batches that are decompressed or compressed at the same time."""
    log_retention_check_interval_ms: Reloadable[int] = Field(default=300_000, ge=10)
    """`log.retention.check.interval.ms` of the brokers: how often retention of diskless topics is applied."""
    default_retention_ms: Reloadable[int] = Field(default=604_800_000, ge=-1)
    """`retention.ms` of diskless topics that set none, as long as the proxy's principal may not ask the brokers for
    their own default. A topic that sets no `cleanup.policy` is taken for `delete` then."""
    authorization_cache_ms: Reloadable[int] = Field(default=5_000, ge=0)
    """How long a connection remembers what its client may do with a diskless topic."""
    sasl_oauthbearer_sub_claim_name: str = Field(default="sub", min_length=1)
    """`sasl.oauthbearer.sub.claim.name` of the brokers: the claim that is the user, for quotas by user."""
    producer_id_expiration_ms: int = Field(default=86_400_000, ge=1000)
    """`producer.id.expiration.ms` of the brokers."""
    producer_id_expiration_check_interval_ms: Reloadable[int] = Field(default=600_000, ge=10)
    """`producer.id.expiration.check.interval.ms` of the brokers: how often producers that have expired are removed."""
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
                f"{value!r} is not module:Class; install the class's module beside the proxy, and name both"
            )
        return value

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
    def storage_class(self) -> str:
        """The storage's class, `file` or `s3`; empty where `storage.url` says it."""
        return self.diskless_storage_class_name or self.diskless_storage_class_path

    @property
    def identity(self) -> str:
        """This proxy's name in the fleet."""
        return self.proxy_id or f"{self.rack}/{self.listeners.client_host}:{self.listeners.bootstrap_port}"


"""In the name of a setting: its value is not shown, not even where it should have been a section."""
