"""Stores of diskless topics: the coordinator's store and object storage."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from proxy.config.section import Reloadable, Section

_SHORTEST_FURTHER_MS = 1_000
_AWS_IAM = r"(elasticache|memorydb)/[a-z0-9][a-z0-9-]*"
_AWS_IAM_AGE_MS = 11 * 3_600_000


class Redis(Section):
    """The coordinator's store: Redis 7 or Valkey 8 and newer, `noeviction`."""

    url: str = Field(repr=False)
    """`redis://[user:password@]host:port/db`, `rediss://` for TLS, or `unix://`. For a cluster, `redis+cluster://` or
    `rediss+cluster://` with some or all of its servers: `redis+cluster://host:port,host:port`. For a primary that
    Sentinels watch, `redis+sentinel://` or `rediss+sentinel://` with the Sentinels, the name that they have for the
    primary, and the database: `redis+sentinel://host:port,host:port/name/db`. User and password are the server's; those
    of the Sentinels are `?sentinel_username=…&sentinel_password=…`."""
    password_file: str = ""
    """File with the password, which is read again for each new connection, so that a rotation needs no restart. The
    user is that of `url`."""
    credentials: str = ""
    """`module:Class`, a `redis.credentials.CredentialProvider` without arguments. It is asked for user and password
    before each new connection, for example for a token that expires."""
    aws_iam: str = ""
    """`elasticache/NAME` or `memorydb/NAME`, with the name of the replication group or cluster. The proxy authenticates
    by IAM: a token of its AWS role takes the place of the password, for each new connection. The user is that of `url`,
    which has to be `rediss`."""
    max_connection_age_ms: int = Field(default=0, ge=0)
    """Age at which a connection is replaced by a new one, before a service ends it; 0 for never, or for eleven hours
    with `aws_iam`, because AWS ends connections after twelve."""
    shards: int = Field(default=16, ge=1, le=4096)
    """Number of hash tags that partitions map to. It is fixed for the life of the data."""
    timeout_ms: int = Field(default=3_000, ge=1)
    """Timeout of one call."""
    max_connections: int = Field(default=32, ge=2)
    """Maximum number of calls at a time."""
    max_index_bytes: Reloadable[int] = Field(default=0, ge=0, le=2**53)
    """Memory of one shard's index above which produces to its partitions are throttled with a retriable error, until
    retention or deletion has made room; 0 for no bound. See docs/sizing.md."""
    pack_age_ms: int = Field(default=60_000, ge=0)
    """Age after which rows of the index are packed into a quarter of their memory."""
    pack_interval_ms: Reloadable[int] = Field(default=15_000, ge=10)
    """How often the proxy looks for rows of that age."""
    durability: Literal["appendonly", "memorydb", "trusted"] = "appendonly"
    """Guarantee that the store keeps acknowledged commits. With `appendonly`, its append-only file gives it: a store
    that has none, or that shows neither by CONFIG GET nor by INFO whether it has one, is rejected. With `memorydb`,
    Amazon MemoryDB gives it, which writes each commit to several zones. With `trusted`, you give it: no file is
    checked, and what the store forgets is lost. Not needed, and ignored, with `journal.mode: required`: the journal
    keeps all commits then. A store that evicts keys is rejected in any case."""
    require_append_fsync: Literal["always", "everysec", "no"] = "everysec"
    """The weakest `appendfsync` that the proxy accepts with `durability: appendonly`. With `always`, a crash of the
    store's machine loses no acknowledged commit. With `everysec`, it loses those of one second; the proxies notice that
    and fence the shards concerned. Ignored with `journal.mode: required`."""
    wait_replicas: int = Field(default=0, ge=0, le=16)
    """Number of replicas that must have a commit before it is acknowledged (`WAIT`), so that a failover to any of them
    loses no commit. Each commit waits for their answer. As long as fewer replicas answer, nothing is acknowledged."""
    wait_aof: bool = False
    """Wait until a commit is on the disk of the server, and of `wait_replicas` replicas, before it is acknowledged
    (`WAITAOF`: Redis 7.2, Valkey). With `appendfsync everysec` that takes up to a second."""
    check_interval_ms: int = Field(default=1_000, ge=10)
    """How often each proxy checks that the store is fit, that it is still the same store, and that it has the state
    that this proxy knows."""
    settle_ms: int = Field(default=3_000, ge=0)
    """How long a server that was started or promoted takes no writes, so that every proxy can first say what it knows.
    It has to be longer than `check_interval_ms` plus the time in which proxies reconnect."""
    remember_interval_ms: int = Field(default=10_000, ge=10)
    """How often the known state of the store is written to object storage, for proxies that restart."""

    @field_validator("url")
    @classmethod
    def _scheme(cls, value: str) -> str:
        forms = "redis://host:port/db, rediss://…, unix://…, redis+cluster://… or redis+sentinel://…"
        try:
            url = urlsplit(value)
        except ValueError:  # the text of this error quotes user and password
            raise ValueError(f"is not a URL; use {forms}") from None
        scheme, _, kind = url.scheme.partition("+")
        if (
            scheme not in {"redis", "rediss", "unix"}
            or kind not in {"", "cluster", "sentinel"}
            or (kind and scheme == "unix")
        ):
            raise ValueError(f"use {forms}")
        if scheme != "unix" and not url.netloc:  # the client would take that for localhost
            raise ValueError("names no host; use redis://host:port/db, with both slashes")
        hosts = url.netloc.rpartition("@")[2].split(",")
        if len(hosts) > 1 and not kind:
            raise ValueError("names several hosts; use redis+cluster:// or redis+sentinel:// if they belong together")
        try:
            for host in hosts:
                _ = urlsplit(f"//{host}").port
        except ValueError:
            raise ValueError("its port is not a number from 0 to 65535; use redis://host:port/db") from None
        if kind and not all(hosts):
            raise ValueError(f"names an empty host; use redis+{kind}://host:port,host:port")
        if kind == "cluster" and url.path.strip("/") not in {"", "0"}:
            raise ValueError("names a database; a cluster has only database 0")
        if kind == "sentinel" and not url.path.strip("/"):
            raise ValueError("names no primary; use redis+sentinel://host:port,host:port/name/db")
        if "@" in url.path + url.fragment:
            raise ValueError("has an @ after its host; write / ? # and @ of user and password as %2F %3F %23 and %40")
        return value

    @field_validator("credentials")
    @classmethod
    def _class_name(cls, value: str) -> str:
        module, _, name = value.partition(":")
        if value and not (module and name):
            raise ValueError("is not module:Class")
        return value

    @model_validator(mode="after")
    def _one_password(self) -> Redis:
        has_password = urlsplit(self.url).password is not None
        if has_password + bool(self.password_file) + bool(self.credentials) + bool(self.aws_iam) > 1:
            raise ValueError("give the password in one of url, password_file, credentials and aws_iam")
        return self

    @model_validator(mode="after")
    def _by_iam(self) -> Redis:
        if self.aws_iam and not re.fullmatch(_AWS_IAM, self.aws_iam):
            raise ValueError("aws_iam is not elasticache/NAME or memorydb/NAME, with a name in lower case")
        url = urlsplit(self.url)
        if self.aws_iam and not (url.username and url.scheme.startswith("rediss")):
            raise ValueError("aws_iam needs TLS and a user in url: rediss://user@host:port/db")
        return self

    @property
    def connection_age_s(self) -> float:
        """Age at which a connection is replaced, in seconds; 0 for never."""
        return (self.max_connection_age_ms or (_AWS_IAM_AGE_MS if self.aws_iam else 0)) / 1000

    @model_validator(mode="after")
    def _is_memorydb(self) -> Redis:
        if self.durability == "memorydb" and urlsplit(self.url).scheme.partition("+")[2] != "cluster":
            raise ValueError("MemoryDB is a cluster; set url to rediss+cluster://host:port, or durability to trusted")
        return self


class Storage(Section):
    """Object storage for WAL segments."""

    url: str
    """`s3://bucket/prefix`, `gs://bucket/prefix` (Google Cloud Storage), `az://account/container/prefix` (Azure Blob
    Storage) or `file:///directory`."""
    endpoint_url: str = ""
    """Endpoint of an S3-compatible store, or of a private endpoint; if empty, the provider's own."""
    region: str = "us-east-1"
    """Region of the bucket."""
    access_key_id: str = ""
    """Access key, used with `secret_access_key`. Prefer the AWS chain."""
    secret_access_key: str = Field(default="", repr=False)
    """Secret key. If both keys are empty, the usual AWS chain (environment, profile, instance role) is used. For `az`
    the key of the account; if empty, Azure's chain (environment, workload identity, managed identity) is used. `gs`
    uses Google's application default credentials."""
    role_arn: str = ""
    """For `s3`: ARN of a role that the proxy assumes for the bucket, also one of another AWS account. The keys or the
    chain above need the right `sts:AssumeRole` for it."""
    role_external_id: str = ""
    """External ID that the trust policy of `role_arn` requires, if it does."""
    kms_key_id: str = ""
    """For `s3`: ARN or ID of the KMS key that encrypts new objects (SSE-KMS). If empty, the bucket's own default
    encryption applies."""
    unsigned_payload: Literal["tls", "always", "never"] = "tls"
    """For `s3`: requests whose signature leaves out the content of the object. The proxy then computes no SHA-256 of
    each segment. With `tls` these are requests over TLS, which protects the content itself. `always` includes an
    `http://` endpoint, for a network that you trust. Use `never` if a bucket's policy demands signed content."""
    request_timeout_ms: int = Field(default=10_000, ge=1)
    """Timeout of each attempt."""
    max_attempts: int = Field(default=4, ge=1)
    """Number of attempts after which an upload or a fetch has failed. With `s3` one more comes before them, by a client
    that takes less CPU and explains no errors."""
    max_connections: int = Field(default=32, ge=1)
    """Maximum number of connections to the store at a time. For S3, segments have two clients, of which each has that
    many."""
    hedge_after_ms: int = Field(default=0, ge=0)
    """Time after which the upload of a WAL segment is begun again under a second name, and the first one that ends
    counts; 0 to wait for the first upload alone. At most two second uploads run at a time. Set about five times the
    99th percentile of `diskless_proxy_upload_seconds`."""

    @model_validator(mode="after")
    def _of_s3(self) -> Storage:
        for name in ("role_arn", "kms_key_id"):
            if getattr(self, name) and urlsplit(self.url).scheme in {"file", "gs", "az"}:
                raise ValueError(f"{name} is for s3://; remove it")
        if self.role_external_id and not self.role_arn:
            raise ValueError("role_external_id has no effect without role_arn; name both or none")
        if self.kms_key_id and urlsplit(self.url).netloc.endswith("--x-s3"):
            raise ValueError("a directory bucket takes its key from its own default encryption; remove kms_key_id")
        return self


class Garbage(Section):
    """Objects of diskless topics that no record needs any more. One proxy of the fleet looks for them."""

    interval_ms: Reloadable[int] = Field(default=30_000, ge=10)
    """How often the proxy looks for segments whose last record is gone."""
    grace_ms: int = Field(default=60_000, ge=0)
    """Time from the moment when no client can find a segment any more to its deletion: longer than any Fetch takes. No
    commit is retried for longer, whatever `diskless_append_commit_timeout_ms` says, because the effects of its first
    attempt may be freed by then. Restoring a state of Redis that is older can lose records if a merge or a compaction
    has run since, because that state names deleted objects. So set at least the age of the oldest backup that you may
    restore, and the largest lag of a replica: see docs/operations/redis.md. The value has to be the same for all
    proxies and jobs: stop the jobs to raise it, and stop all to lower it."""
    orphan_sweep_interval_ms: Reloadable[int] = Field(default=3_600_000, ge=10)
    """How often all objects are listed to find those that were uploaded and never committed."""
    orphan_age_ms: int = Field(default=3_600_000, ge=0)
    """Age by the clock of object storage. Younger objects are left alone, because their commit may be under way."""

    @property
    def further_rows_within_ms(self) -> int:
        """Return how long after its first rows an object may get further rows.

        If the first rows are freed at once, the object is deleted `grace_ms` later. The result is at least a second:
        shorter graces are for tests.
        """
        return max(self.grace_ms, _SHORTEST_FURTHER_MS)
