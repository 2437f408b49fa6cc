"""Where diskless topics are kept: the coordinator's store and object storage."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from proxy.config.section import Reloadable, Section

_SHORTEST_FURTHER_MS = 1_000


class Redis(Section):
    """The coordinator's store: Redis 7 or Valkey 8 and newer, `noeviction`, append-only file on."""

    url: str = Field(repr=False)
    """`redis://[user:password@]host:port/db`, `rediss://` for TLS, or `unix://`."""
    shards: int = Field(default=16, ge=1, le=4096)
    """Number of hash tags that partitions map to. Fixed for the life of the data."""
    timeout_ms: int = Field(default=3_000, ge=1)
    """For one call."""
    max_connections: int = Field(default=32, ge=2)
    """Calls at a time."""
    max_index_bytes: Reloadable[int] = Field(default=0, ge=0, le=2**53)
    """Memory of one shard's index above which produces to its partitions are throttled, with a retriable error, until
    retention or deletion has made room; 0 for no bound. See docs/sizing.md."""
    pack_age_ms: int = Field(default=60_000, ge=0)
    """Rows of the index that were appended so long ago are packed into a quarter of their memory."""
    pack_interval_ms: Reloadable[int] = Field(default=15_000, ge=10)
    """How often rows that have grown so old are looked for."""
    require_append_only: bool = True
    """Refuse a store that keeps acknowledged commits in memory only."""
    require_append_fsync: Literal["always", "everysec", "no"] = "everysec"
    """The least `appendfsync` of a store that is not refused: with `always` no crash of its machine loses a commit that
    was acknowledged; with `everysec` one loses those of a second, which is noticed and fences the shards concerned."""
    wait_replicas: int = Field(default=0, ge=0, le=16)
    """Number of replicas that must have a commit before it is acknowledged (`WAIT`), so that a failover to any of them
    loses none. Each commit waits for their answer. While fewer answer, nothing is acknowledged."""
    wait_aof: bool = False
    """Wait until a commit is on the disk of the server, and of `wait_replicas` replicas, before it is acknowledged
    (`WAITAOF`: Redis 7.2, Valkey). With `appendfsync everysec` that takes up to a second."""
    check_interval_ms: int = Field(default=1_000, ge=10)
    """How often each proxy sees whether the store is still fit, and the same one, and has what this proxy knows."""
    settle_ms: int = Field(default=3_000, ge=0)
    """How long a server that was started or promoted takes no writes, so that every proxy can say what it knows first:
    longer than `check_interval_ms` and the time that proxies need to connect again."""
    remember_interval_ms: int = Field(default=10_000, ge=10)
    """How often the known state of the store is written to object storage, for proxies that start again."""

    @field_validator("url")
    @classmethod
    def _scheme(cls, value: str) -> str:
        try:
            url = urlsplit(value)
        except ValueError:  # whose words quote user and password
            raise ValueError("is no URL; use redis://host:port/db, rediss://… or unix://…") from None
        if url.scheme not in {"redis", "rediss", "unix"}:
            raise ValueError("use redis://host:port/db, rediss://… or unix://…")
        try:
            _ = url.port
        except ValueError:
            raise ValueError("its port is no number from 0 to 65535; use redis://host:port/db") from None
        if url.scheme != "unix" and not url.netloc:  # the client would take that for localhost
            raise ValueError("names no host; use redis://host:port/db, with both slashes")
        if "@" in url.path + url.fragment:
            raise ValueError("has an @ behind its host; write / ? # and @ of user and password as %2F %3F %23 and %40")
        return value


class Storage(Section):
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


class Garbage(Section):
    """Objects of the diskless topics that nobody needs any more. One proxy of the fleet looks for them."""

    interval_ms: Reloadable[int] = Field(default=30_000, ge=10)
    """How often segments whose last record is gone are looked for."""
    grace_ms: int = Field(default=60_000, ge=0)
    """From the moment when nobody can find a segment any more to its deletion: longer than any Fetch takes. No commit
    is tried for longer, whatever `diskless_append_commit_timeout_ms` says: what it has done first may be freed by then.
    A state of Redis that is older must not be brought back once a merge or a compaction has run: it names objects that
    are deleted. So at least the age of the oldest backup that is to be used, and the largest lag of a replica: see
    docs/operations.md. The same for all proxies and jobs: stop the jobs to raise it, and all to lower it."""
    orphan_sweep_interval_ms: Reloadable[int] = Field(default=3_600_000, ge=10)
    """How often all objects are listed, to find those that were uploaded and never committed."""
    orphan_age_ms: int = Field(default=3_600_000, ge=0)
    """Younger objects are left alone: their commit may be under way."""

    @property
    def further_rows_within_ms(self) -> int:
        """How long after its first rows an object may be given further ones: when the first are freed at once, it is
        deleted `grace_ms` later. At least a second: shorter graces are for tests."""
        return max(self.grace_ms, _SHORTEST_FURTHER_MS)
