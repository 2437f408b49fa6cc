"""Limits for one client and for all clients together."""

from __future__ import annotations

from pydantic import Field, field_validator

from proxy.config.section import Reloadable, Section, Texts, checked_patterns


class Limits(Section):
    """Limits for one client and for all clients together."""

    max_frame_bytes: Reloadable[int] = Field(default=104_857_600, ge=1024)
    """`socket.request.max.bytes` of the brokers."""
    max_connections: Reloadable[int] = Field(default=0, ge=0)
    """Maximum number of client connections. With 0, the limit of open files decides, and the proxy logs a line if that
    allows fewer than 1,000. A connection takes two file descriptors, or three with `fetch.read_near_replicas`. If the
    hard limit of open files is too low for the number that is set, the proxy lowers the number at the start and logs a
    line."""
    max_connections_per_ip: Reloadable[int] = Field(default=10_000, ge=1)
    """Maximum number of client connections from one address."""
    idle_timeout_ms: Reloadable[int] = Field(default=600_000, ge=100)
    """`connections.max.idle.ms` of the brokers: a connection is closed after this long without a request, an answer, or
    a wait for an answer."""
    max_unauthenticated_request_bytes: Reloadable[int] = Field(default=524_288, ge=1024)
    """`sasl.server.max.receive.size` of the brokers: the largest request of a client that has not authenticated yet,
    and the largest SASL token of any client."""
    max_unauthenticated_requests: Reloadable[int] = Field(default=100, ge=10)
    """Maximum number of requests that a connection may send before it has authenticated. Clients send fewer than
    ten."""
    frame_timeout_ms: Reloadable[int] = Field(default=60_000, ge=100)
    """Longest time from the first bytes of a request to its last, while the proxy is reading."""
    contended_frame_timeout_ms: Reloadable[int] = Field(default=5_000, ge=100)
    """The same limit while other requests wait for memory. It is shorter, to cut off clients that announce much and
    send little."""
    write_timeout_ms: Reloadable[int] = Field(default=600_000, ge=100)
    """A client that takes none of the bytes that wait for it is cut off after this long. A client whose connection is
    being closed has at most this long for its last bytes; with TLS it has three seconds."""
    broker_write_timeout_ms: Reloadable[int] = Field(default=30_000, ge=0)
    """How long the proxy keeps the last requests of a client that has left, perhaps without acknowledgement, for a
    broker that does not take them. A client that stays is cut off after this long if other requests wait for the
    memory. A Produce without acknowledgement that may be for a topic which is just being created is kept no longer."""
    write_buffer_bytes: Reloadable[int] = Field(default=65_536, ge=1024)
    """Bytes of answers that a client has not taken, or of requests that a broker has not taken. Above this, reading
    from the other side stops. The frame that exceeds the limit is let in whole unless it is streamed."""
    tcp_keepalive_idle_s: int = Field(default=60, ge=1)
    """After this long without a byte from a client's or broker's machine, the proxy sends the first TCP keepalive
    probe."""
    tcp_keepalive_interval_s: int = Field(default=10, ge=1)
    """Interval between two keepalive probes."""
    tcp_keepalive_probes: int = Field(default=6, ge=1)
    """Number of keepalive probes without an answer after which the connection counts as dead."""
    max_in_flight_requests: Reloadable[int] = Field(default=64, ge=1)
    """Number of requests of one connection that may wait for an answer before reading from the connection stops."""
    max_request_bytes_in_memory: Reloadable[int] = Field(default=536_870_912, ge=1024)
    """Bytes of all held requests, of what is decoded of large ones, of unread answers and of WAL buffers of the
    process. Above this, reading stops."""
    long_work_slice_ms: int = Field(default=2, ge=1)
    """Length of one turn of long work: requests that name very many things, and lookups by time. A pause of the same
    length comes before each turn."""
    max_unread_answer_bytes: Reloadable[int] = Field(default=134_217_728, ge=1024)
    """Bytes of answers to all clients that are written and not read. They are part of `max_request_bytes_in_memory`,
    and at most a quarter of it. Above this, the connections of the slowest clients end, and Fetches of diskless topics
    get the memory that is free."""
    unread_grace_ms: Reloadable[int] = Field(default=1_000, ge=1)
    """A client that reads too slowly is not disconnected within this time, no matter how much other clients leave
    unread."""
    max_response_bytes_per_connection: Reloadable[int] = Field(default=67_108_864, ge=1024)
    """Bytes of answers of one connection that wait for an earlier answer, from brokers or from the proxy. Above this,
    reading from broker and client stops. One Fetch of diskless topics answers no more than this either."""
    metadata_reuse_bytes: Reloadable[int] = Field(default=16_777_216, ge=0)
    """Bytes of Metadata answers of brokers that are kept with their rewritten topics, so that the next client with the
    same answer costs next to nothing; 0 for none. One answer takes at most twice its own size, and there is one for
    each leader of diskless topics and each version of the API that clients use."""
    memory_trim_interval_ms: Reloadable[int] = Field(default=60_000, ge=0)
    """How often the process gives free memory back to the system (with glibc only), which takes some milliseconds; 0
    for never. If it never does, the process stays as large as in its busiest moment. In the meantime, freed memory is
    kept for the next blocks, unless the environment has options for glibc's allocator (`MALLOC_…`)."""
    poll_window_us: int = Field(default=0, ge=0, le=100_000)
    """Time after each request in which the process does not sleep, so that the broker's answer finds it awake; 0 for
    off. A few hundred make a lone request faster where cores are spare, and cost up to a core while requests come."""
    tls_handshake_timeout_ms: Reloadable[int] = Field(default=10_000, ge=100)
    """Longest time from an accepted connection to the end of its TLS handshake."""
    drain_timeout_ms: Reloadable[int] = Field(default=25_000, ge=0)
    """Longest time from SIGTERM to the end of the process. The last rollup may take a few seconds more."""
    drain_pause_ms: Reloadable[int] = Field(default=250, ge=0)
    """Pause in a drain between closing the connections to one broker and closing those to the next. In this time
    clients can ask on another connection where their brokers are now. All pauses together take at most eight times as
    long."""
    max_counted_topics: Reloadable[int] = Field(default=200, ge=0)
    """Maximum number of topics with their own byte counters (first come, first served). The rest are counted as
    `(others)`, and names that brokers don't know as `(unknown)`."""


class FetchSettings(Section):
    """Reads of diskless topics, and of classic topics from near replicas."""

    max_bytes: Reloadable[int] = Field(default=57_671_680, ge=1024)
    """`fetch.max.bytes` of the brokers."""
    cache_bytes: Reloadable[int] = Field(default=268_435_456, ge=1024)
    """Bytes of segment blocks of all partitions that are kept in memory."""
    block_bytes: int = Field(default=8_388_608, ge=4096)
    """Size of the aligned blocks in which segments are read."""
    cold_after_ms: Reloadable[int] = Field(default=300_000, ge=0)
    """Age after which records count as old. Old records are read within the limits of the next four settings, so that
    they do not push newer records out of the cache."""
    cold_cache_bytes: Reloadable[int] = Field(default=67_108_864, ge=1024)
    """Bytes of segment blocks with old records that are kept in memory or are being read, for all partitions."""
    cold_block_bytes: int = Field(default=1_048_576, ge=4096)
    """Size of the aligned blocks in which old records are read."""
    merged_block_bytes: int = Field(default=8_388_608, ge=4096)
    """The same for old records that a merge or a compaction has moved. The blocks are halved, down to
    `cold_block_bytes`, as long as `cold_cache_bytes` has no room for two blocks of each object that is being read and
    for `cold_max_gets` blocks."""
    cold_max_gets: int = Field(default=8, ge=1)
    """Maximum number of GETs of old blocks at a time."""
    read_ahead_bytes: Reloadable[int] = Field(default=8_388_608, ge=0)
    """Bytes of records after those of an answer that are read from object storage before a consumer requests them, if
    it is behind in at most 8 partitions, for all of them. The blocks that have these records take at most a quarter of
    a cache and half of its GETs at a time. 0: none."""
    shortest_read_wait_ms: Reloadable[int] = Field(default=200, ge=1)
    """Shortest time that a Fetch which already has something to answer waits for the rest from object storage. It waits
    longer if the client's `max.wait.ms` allows."""
    coordinates_max_age_ms: Reloadable[int] = Field(default=60_000, ge=0)
    """How long records are still read by cached coordinates while the coordinator can't be reached. The time starts
    with the coordinator's last answer about the partition. After it, a Fetch gets KAFKA_STORAGE_ERROR, which clients
    retry, because the log may have been trimmed, compacted or deleted meanwhile. Cached coordinates are trusted for 15
    to 45 s in any case."""
    time_lookup_max_rows: int = Field(default=4, ge=1)
    """Number of commits whose batches are read at a time for ListOffsets by time or of the maximum timestamp."""
    time_lookup_timeout_ms: Reloadable[int] = Field(default=30_000, ge=1)
    """Longest time that such a ListOffsets takes. The client's own timeout (v10 and newer) may be shorter, unless it is
    0."""
    max_decompressed_batch_bytes: Reloadable[int] = Field(default=134_217_728, ge=1024)
    """Maximum size of the decompressed batches of one commit when they are searched for the record of a time. If the
    batches are larger, the answer is their first offset."""
    mixed_wait_ms: Reloadable[int] = Field(default=50, ge=1)
    """Longest wait, per round, for the brokers' half of a Fetch that names classic and diskless topics."""
    read_near_replicas: Reloadable[bool] = True
    """Read classic topics from replicas in the proxy's own rack for clients that connect to a listener of another
    rack's broker (KIP-392 without the client's help). If false, brokers' answers pass unchanged."""
    leader_read_topics: Reloadable[Texts] = ()
    """Regular expressions: classic topics whose whole name matches one are always read from their leaders, in any rack.
    Use it for topics with few records that are needed at once, because a follower gets records a little later."""
    replica_connections_max: Reloadable[int] = Field(default=1_000, ge=1)
    """Maximum number of the proxy's own connections to each broker of its rack for such reads. If none is free, the
    read goes to the leader."""
    replica_idle_ms: Reloadable[int] = Field(default=60_000, ge=10)
    """Idle time after which such a connection is closed."""
    replica_answer_bytes_max: Reloadable[int] = Field(default=268_435_456, ge=1024)
    """Bytes of answers of replicas, and of leaders read together with them, that are held until clients have taken
    them. Above this, the proxy stops reading these answers, and new requests stream from the leaders."""
    replica_grace_ms: Reloadable[int] = Field(default=1_000, ge=10)
    """How long after the client's `max.wait.ms` a replica may begin to answer. After that, the proxy asks the
    leader."""
    replica_rights_grace_ms: Reloadable[int] = Field(default=30_000, ge=0)
    """How long the right to read from near replicas outlives `authorization_cache_ms` while the client's broker does
    not answer who may read. An unresponsive broker's partitions get new leaders sooner than that, and clients then go
    to these. With 0 the leaders are asked for the partitions at once."""
    replica_shun_ms: Reloadable[int] = Field(default=1_000, ge=10)
    """How long a replica is avoided after an error that says that it is no longer a replica, or does not have the
    records. Also the interval at which a broker that did not answer is tried again."""
    api_versions_wait_ms: Reloadable[int] = Field(default=1_000, ge=1)
    """How long a listener of another rack's broker waits for that broker's answer to ApiVersions. After that, the
    client gets the last answer of any broker, so that new connections read from near replicas while the broker is
    unresponsive."""
    replica_topics_remembered: Reloadable[int] = Field(default=10_000, ge=1)
    """Maximum number of classic topics being read whose leaders and replicas are cached. Further topics are read from
    their leaders."""

    near_partitions_max: Reloadable[int] = Field(default=2_000, ge=256)
    """Maximum number of classic partitions of one Fetch that are read from near replicas. A Fetch with more is read
    from the leaders. Each partition takes up to 5 µs of CPU in one step, in which no other client is served."""
    replica_compare_interval_ms: Reloadable[int] = Field(default=1_000, ge=10)
    """Interval at which the brokers of the proxy's rack are asked for the ends of their logs. This is done for classic
    partitions that are read and have several replicas in the rack, none of which is the leader. Clients don't read from
    a replica that is about this long behind another replica."""
    replica_partitions_compared: Reloadable[int] = Field(default=10_000, ge=0)
    """Maximum number of such partitions. For further partitions, any replica in the ISR counts as caught up."""

    @field_validator("leader_read_topics")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_patterns(value)
