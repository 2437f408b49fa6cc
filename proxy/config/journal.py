"""The journal: a topic on the brokers that holds the order of all writes to the coordinator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from proxy.config.section import Section


class Journal(Section):
    """The journal, a topic on the brokers that holds the order of all writes to the coordinator's store.

    With it, a store that loses writes is rebuilt without an operator, from a snapshot and the records after it.
    """

    mode: Literal["off", "required"] = "required"
    """`required`: every write is appended to the journal before it is applied to the store. `off`: the store alone
    holds the order, and what it loses is lost. All proxies, jobs and commands of a deployment need the same mode. It
    cannot be changed while there are data."""
    topic: str = Field(default="__diskless_journal", pattern=r"^[a-zA-Z0-9._-]{1,249}$")
    """Topic of the journal. It has a partition for each shard of the store and one for the registry of diskless
    topics. It is created if it is missing."""
    replication_factor: int = Field(default=3, ge=1, le=32_767)
    """Number of replicas of each partition of the topic."""
    min_insync_replicas: int = Field(default=2, ge=1, le=32_767)
    """`min.insync.replicas` of the topic: number of replicas that must have a record before it counts as written."""
    timeout_ms: int = Field(default=10_000, ge=100)
    """Longest time that a record waits until it is sent, and longest time for the brokers' answer after that. Also the
    longest time of a read, and of a check of the topic."""
    attempt_timeout_ms: int = Field(default=2_000, ge=10)
    """Longest time for one request that changes nothing, for example a read, before another broker is tried."""
    retry_backoff_ms: int = Field(default=20, ge=1)
    """Pause before a second attempt of what failed for certain, for example because the leader moved. It doubles with
    each attempt."""
    retry_backoff_max_ms: int = Field(default=500, ge=1)
    """Longest such pause."""
    max_append_bytes: int = Field(default=4_194_304, ge=65_536, le=67_108_864)
    """Maximum size of a record batch, and of all batches of one request. `max.message.bytes` of the topic must not be
    smaller, nor `socket.request.max.bytes` of the brokers."""
    max_waiting_bytes: int = Field(default=33_554_432, ge=65_536)
    """Maximum size of the records that are being appended at a time. Further ones are rejected, with a retriable error
    for clients."""
    read_max_bytes: int = Field(default=4_194_304, ge=65_536, le=1_073_741_824)
    """Maximum size of one answer of records. A single batch of records may be larger."""
    append_connections_max: int = Field(default=4, ge=1, le=64)
    """Maximum number of connections to one broker that records are appended over. Each has one request at a time, and
    records that wait meanwhile share the next one."""
    snapshot_interval_ms: int = Field(default=600_000, ge=1_000)
    """Time after which a partition of the journal with new records gets its next snapshot, in object storage. The
    records before the last snapshot but one are deleted. A rebuild of the store loads the newest snapshot and applies
    the records after it."""
    snapshot_records: int = Field(default=1_000_000, ge=1)
    """Number of new records of a partition after which it gets its next snapshot earlier."""

    @model_validator(mode="after")
    def _consistent(self) -> Journal:
        if self.min_insync_replicas > self.replication_factor:
            raise ValueError(
                f"min_insync_replicas is {self.min_insync_replicas} and replication_factor {self.replication_factor}: "
                "nothing could be written; lower min_insync_replicas"
            )
        if self.max_waiting_bytes < self.max_append_bytes:
            raise ValueError(
                f"max_waiting_bytes is {self.max_waiting_bytes}, less than max_append_bytes={self.max_append_bytes}; "
                "raise max_waiting_bytes"
            )
        return self
