"""What one client, or all of them, may take."""

from __future__ import annotations

from pydantic import Field, field_validator

from proxy.config.section import Reloadable, Section, Texts, checked_patterns


class Limits(Section):
    """What one client, or all of them, may take."""

    max_frame_bytes: Reloadable[int] = Field(default=104_857_600, ge=1024)
    """`socket.request.max.bytes` of the brokers."""
    max_connections: Reloadable[int] = Field(default=0, ge=0)
    """Maximum number of client connections; 0 for as many as the limit of open files allows, with a log line if these
    are fewer than 1,000. Each takes two file descriptors, three with `fetch.read_near_replicas`. If the hard limit of
    open files allows fewer than a number that is set, the number is lowered at the start, with a log line."""
    max_connections_per_ip: Reloadable[int] = Field(default=10_000, ge=1)
    """Client connections from one address."""
    idle_timeout_ms: Reloadable[int] = Field(default=600_000, ge=100)
    """`connections.max.idle.ms` of the brokers: a connection that neither asks nor is answered, nor waits for an
    answer, for this long is closed."""
    max_unauthenticated_request_bytes: Reloadable[int] = Field(default=524_288, ge=1024)
    """`sasl.server.max.receive.size` of the brokers: the largest request of a client that has not authenticated yet,
    and the largest SASL token of any client."""
    max_unauthenticated_requests: Reloadable[int] = Field(default=100, ge=10)
    """Requests of a connection before it has authenticated. Clients send fewer than ten."""
    frame_timeout_ms: Reloadable[int] = Field(default=60_000, ge=100)
    """From the first bytes of a request to its last, while the proxy is reading."""
    contended_frame_timeout_ms: Reloadable[int] = Field(default=5_000, ge=100)
    """The same while other requests wait for memory: one that announces much and sends little is cut off sooner."""
    write_timeout_ms: Reloadable[int] = Field(default=600_000, ge=100)
    """A client that takes none of the bytes that it is owed for this long is cut off; one that is being closed has this
    long for its last ones, at most, and with TLS three seconds."""
    broker_write_timeout_ms: Reloadable[int] = Field(default=30_000, ge=0)
    """What a client that has left sent last, perhaps without acknowledgement, is kept this long for a broker that does
    not take it. A client that stays is cut off after that where other requests wait for the memory."""
    write_buffer_bytes: Reloadable[int] = Field(default=65_536, ge=1024)
    """Of answers that a client has not taken, and of requests that a broker has not: above it, reading from the other
    side stops. The frame that goes above it is let in whole where it is not streamed."""
    tcp_keepalive_idle_s: int = Field(default=60, ge=1)
    """A client's or broker's machine that has said nothing for this long is asked whether it is still there."""
    tcp_keepalive_interval_s: int = Field(default=10, ge=1)
    """Until it is asked again."""
    tcp_keepalive_probes: int = Field(default=6, ge=1)
    """How often it is asked before the connection is taken as dead."""
    max_in_flight_requests: Reloadable[int] = Field(default=64, ge=1)
    """Requests of one connection that wait for an answer, before reading from it stops."""
    max_request_bytes_in_memory: Reloadable[int] = Field(default=536_870_912, ge=1024)
    """All held requests, unread answers and WAL buffers of the process; reading stops above it."""
    long_work_slice_ms: int = Field(default=2, ge=1)
    """Requests that name very much, and lookups by time, work in turns of this length, with a rest of the same length
    before each turn."""
    max_unread_answer_bytes: Reloadable[int] = Field(default=134_217_728, ge=1024)
    """Answers of all clients that are written and not read, part of `max_request_bytes_in_memory` and at most a quarter
    of it. Above it, the connections of the slowest clients end, and Fetches of diskless topics get what is free."""
    unread_grace_ms: Reloadable[int] = Field(default=1_000, ge=1)
    """A client that falls behind with reading is not ended within this time, whatever other clients leave unread."""
    max_response_bytes_per_connection: Reloadable[int] = Field(default=67_108_864, ge=1024)
    """Bytes of answers of one connection that wait for an earlier answer, no matter who gives them; reading from broker
    and client stops above it. One Fetch of diskless topics answers no more than this either."""
    memory_trim_interval_ms: Reloadable[int] = Field(default=60_000, ge=0)
    """How often memory that is free is given back to the system, which takes some milliseconds (with glibc only); 0 for
    never. Without it the process stays as large as its busiest moment."""
    tls_handshake_timeout_ms: Reloadable[int] = Field(default=10_000, ge=100)
    """From an accepted connection to the end of its TLS handshake."""
    drain_timeout_ms: Reloadable[int] = Field(default=25_000, ge=0)
    """From SIGTERM to the end of the process at most, and a few seconds more for the last rollup."""
    drain_pause_ms: Reloadable[int] = Field(default=250, ge=0)
    """In a drain, between closing the connections to one broker and those to the next: so long a client has to ask on
    another connection where its brokers are now. All pauses together take eight times this at most."""
    max_counted_topics: Reloadable[int] = Field(default=200, ge=0)
    """Maximum number of topics with byte counters of their own (first come, first served). The rest are counted as
    `(others)`, and names that brokers don't know as `(unknown)`."""


class FetchSettings(Section):
    """Reads of diskless topics, and of classic ones from near replicas."""

    max_bytes: Reloadable[int] = Field(default=57_671_680, ge=1024)
    """`fetch.max.bytes` of the brokers."""
    cache_bytes: Reloadable[int] = Field(default=268_435_456, ge=1024)
    """Segment blocks of all partitions that are kept in memory."""
    block_bytes: int = Field(default=8_388_608, ge=4096)
    """Segments are read in aligned blocks of this size."""
    cold_after_ms: Reloadable[int] = Field(default=300_000, ge=0)
    """Records that were appended longer ago are old. Old ones are read with what the next four settings allow, and
    leave the others' cache alone."""
    cold_cache_bytes: Reloadable[int] = Field(default=67_108_864, ge=1024)
    """Segment blocks with old records that are kept in memory, or being read, for all partitions."""
    cold_block_bytes: int = Field(default=1_048_576, ge=4096)
    """Old records are read in aligned blocks of this size."""
    merged_block_bytes: int = Field(default=8_388_608, ge=4096)
    """The same for old records that a merge or a compaction has moved. Blocks are halved, down to `cold_block_bytes`,
    while `cold_cache_bytes` has no room for two of each object that is being read, and for `cold_max_gets` of them."""
    cold_max_gets: int = Field(default=8, ge=1)
    """GETs of old blocks at a time."""
    shortest_read_wait_ms: Reloadable[int] = Field(default=200, ge=1)
    """A Fetch that has something to answer waits for what is still to be read from object storage as long as the
    client's `max.wait.ms` allows, and at least so long."""
    coordinates_max_age_ms: Reloadable[int] = Field(default=60_000, ge=0)
    """While the coordinator can't be reached, records are still read by the coordinates that it gave, for so long after
    its last answer about the partition. Later a Fetch gets KAFKA_STORAGE_ERROR, which clients retry: the log may have
    been trimmed, compacted or deleted meanwhile. Coordinates are taken for true for 15 to 45 s in any case."""
    time_lookup_max_rows: int = Field(default=4, ge=1)
    """ListOffsets by time, and of the maximum timestamp, reads the batches of this many commits at a time."""
    time_lookup_timeout_ms: Reloadable[int] = Field(default=30_000, ge=1)
    """Longest time that such a ListOffsets takes. The client's own timeout (v10 and newer) may be shorter, unless 0."""
    max_decompressed_batch_bytes: Reloadable[int] = Field(default=134_217_728, ge=1024)
    """What the batches of one commit may become when they are searched for the record of a time. Of one that goes
    beyond, the first offset is answered."""
    mixed_wait_ms: Reloadable[int] = Field(default=50, ge=1)
    """Longest wait for the brokers' half of a Fetch that names classic and diskless topics, per round."""
    read_near_replicas: Reloadable[bool] = True
    """Read classic topics from replicas in the proxy's own rack for clients that come to a listener of another rack's
    broker (KIP-392 without the client's help). Off, brokers' answers pass as they are."""
    leader_read_topics: Reloadable[Texts] = ()
    """Regular expressions: classic topics whose whole name matches one are always read from their leaders, in whatever
    rack these are. For topics with few records that are wanted at once: a follower has them a little later."""
    replica_connections_max: Reloadable[int] = Field(default=1_000, ge=1)
    """Connections of the proxy's own to each broker of its rack, for such reads; one that finds none free goes to the
    leader."""
    replica_idle_ms: Reloadable[int] = Field(default=60_000, ge=10)
    """Such a connection is closed when it was not used for so long."""
    replica_answer_bytes_max: Reloadable[int] = Field(default=268_435_456, ge=1024)
    """Bytes of answers of replicas, and of leaders read together with them, that are held until clients have taken
    them. Above it, reading them pauses, and what is asked for meanwhile streams from the leaders."""
    replica_grace_ms: Reloadable[int] = Field(default=1_000, ge=10)
    """A replica that has not begun to answer so long after the client's `max.wait.ms` is given up, and the leader is
    asked."""
    replica_rights_grace_ms: Reloadable[int] = Field(default=30_000, ge=0)
    """While the client's broker does not answer who may read, a right to read from near replicas outlives
    `authorization_cache_ms` by this. The partitions of a broker that hangs have new leaders sooner, which clients then
    ask. With 0 the leaders are asked for the partitions at once."""
    replica_shun_ms: Reloadable[int] = Field(default=1_000, ge=10)
    """For so long a replica is not asked after an error that says that it is no longer one, or does not have its
    records; and so often a broker that did not answer is tried again."""
    api_versions_wait_ms: Reloadable[int] = Field(default=1_000, ge=1)
    """How long a listener of another rack's broker waits for that broker's answer to ApiVersions. After that, the
    client gets the last answer of any broker, so that new connections read from near replicas while the broker is
    unresponsive."""
    replica_topics_remembered: Reloadable[int] = Field(default=10_000, ge=1)
    """Classic topics that are being read of which leaders and replicas are remembered; those beyond are read from
    their leaders."""

    replica_compare_interval_ms: Reloadable[int] = Field(default=1_000, ge=10)
    """Interval at which the brokers of the proxy's rack are asked for the ends of their logs, if several of them have a
    replica of a classic partition that is read, and none of these is the leader. Clients don't read from a replica that
    is about this long behind another one."""
    replica_partitions_compared: Reloadable[int] = Field(default=10_000, ge=0)
    """Maximum number of such partitions. For further ones any replica in the ISR counts as caught up."""

    @field_validator("leader_read_topics")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_patterns(value)
