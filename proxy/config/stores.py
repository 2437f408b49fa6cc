"""Where diskless topics are kept: the coordinator's store and object storage."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from proxy.config.section import Section


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
    require_append_only: bool = True
    """Refuse a store that keeps acknowledged commits in memory only."""

    @field_validator("url")
    @classmethod
    def _scheme(cls, value: str) -> str:
        if urlsplit(value).scheme not in {"redis", "rediss", "unix"}:
            raise ValueError("use redis://host:port/db, rediss://… or unix://…")
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

    interval_ms: int = Field(default=30_000, ge=10)
    """How often segments whose last record is gone are looked for."""
    grace_ms: int = Field(default=60_000, ge=0)
    """From the moment when nobody can find a segment any more to its deletion: longer than any Fetch takes."""
    orphan_sweep_interval_ms: int = Field(default=3_600_000, ge=10)
    """How often all objects are listed, to find those that were uploaded and never committed."""
    orphan_age_ms: int = Field(default=3_600_000, ge=0)
    """Younger objects are left alone: their commit may be under way."""
