"""The proxy's counters, as plain numbers that cost the hot path next to nothing; `admin.metrics` gives them names."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, defaultdict

from proxy.protocol.api_keys import FETCH, PRODUCE

LATENCY_BOUNDS_S = (
    *(0.001, 0.0015, 0.0025, 0.004, 0.006, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1),
    *(0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 10.0),
)
"""Five to the decade: a percentile is shown at most 1.7 times as large as it was."""
EARLY_BOUNDS_S = (0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)
"""Between the others, for produces that wait for no interval, but only for an upload and a commit."""
API_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Few, as there is one histogram for each API that clients use."""
INTERVAL_SHARES = (
    *(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0),
)
"""Bounds as parts of the commit interval. A batch waits for all of it at most, and then for its upload and its
commit."""
PACED_APIS = (PRODUCE, FETCH)
"""APIs whose requests wait until a WAL segment is committed."""
MAX_COMMIT_INTERVALS = 4
"""Commit intervals that have histograms of their own; a reload beyond that drops the one that is unused for longest."""
LOOP_LAG_BOUNDS_S = (0.002, 0.004, 0.006, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0)
GETS_BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64)
CUT_OFF_REASONS = ("slow_request", "slow_broker", "reads_nothing", "unread_answers")
"""Why the proxy ends a connection that is in use."""
NAME_REJECTIONS = ("missing", "unknown")
"""Why the name in a client's TLS handshake selects no broker."""
STORAGE_OPERATIONS = ("put", "get", "list", "delete")
SIZE_BOUNDS_BYTES = (1024, 16_384, 65_536, 262_144, 1_048_576, 2_097_152, 4_194_304, 8_388_608, 67_108_864)
OTHER_TOPICS = "(others)"
"""Name that stands for the topics beyond the limit."""
UNKNOWN_TOPIC = "(unknown)"
"""Stands for a topic's name: what no topic can be called, and names and IDs that the brokers don't know."""
_LONGEST_TOPIC_NAME = 249
_MAX_NAMED = 100_000
"""Names and IDs of topics that have been settled; IDs of deleted topics among them."""
_MAX_DENIED = 1_000
Way = tuple[str, str, str, str]
"""Kind (classic or diskless), direction (produce or fetch), client's rack, serving rack."""
RecordKey = tuple[str, str, str, str, str]
"""A `Way`, and the topic's name."""


class Histogram:
    """Observations in buckets, cumulated when they are read."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Return how many were observed."""
        return sum(self.counts)


def bounds_around(interval_ms: int) -> tuple[float, ...]:
    """Return the bounds in seconds for requests that wait for a segment: the common ones, and finer ones."""
    fine = (round(interval_ms * share / 1000, 6) for share in INTERVAL_SHARES)
    return tuple(sorted({*LATENCY_BOUNDS_S, *EARLY_BOUNDS_S, *fine}))


class PacedHistogram:
    """Latencies of requests that wait for the commit interval: one histogram for each interval that was configured.

    Histograms can only be added up if their bounds are the same. So each interval has its own one, under a label: that
    holds for workers, for proxies of a fleet, and over a reload.
    """

    __slots__ = ("_current", "by_interval_ms")

    def __init__(self, interval_ms: int) -> None:
        self.by_interval_ms: dict[int, Histogram] = {}
        """The interval that is in use comes last."""
        self.pace(interval_ms)

    def pace(self, interval_ms: int) -> None:
        """Observe requests that wait for this interval from now on."""
        kept = self.by_interval_ms.pop(interval_ms, None)
        self._current = self.by_interval_ms[interval_ms] = kept or Histogram(bounds_around(interval_ms))
        while len(self.by_interval_ms) > MAX_COMMIT_INTERVALS:
            del self.by_interval_ms[next(iter(self.by_interval_ms))]

    def observe(self, value: float) -> None:
        """Count one."""
        self._current.observe(value)


class Ledger:
    """Costs, or savings, at the prices of their time: sums that don't fall when a price is lowered."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}
        """Last seen quantity and sum so far, by kind of cost."""

    def total(self, what: str, quantity: float, price: float) -> float:
        """Return the sum so far, with what came since the last call at today's `price` for one; `quantity` never
        falls."""
        before, total = self._seen.get(what, (0.0, 0.0))
        total += (quantity - before) * price
        self._seen[what] = quantity, total
        return total


class Stats:
    """All counters of one proxy."""

    def __init__(self, max_counted_topics: int = 200, commit_interval_ms: int = 250) -> None:
        """Count the record bytes of `max_counted_topics` topics by name, and those of all others in one sum."""
        self._commit_interval_ms = commit_interval_ms
        self.requests: defaultdict[int, int] = defaultdict(int)
        """Number of requests by API key."""
        self.api_seconds: dict[int, Histogram | PacedHistogram] = {}
        """Time from a request's frame to its answer's last byte, by API key, paced for PACED_APIS. It includes waits
        that clients ask for."""
        self.loop_lag_seconds = Histogram(LOOP_LAG_BOUNDS_S)
        """How much later than asked for the event loop woke someone."""
        self.ledger = Ledger()
        self.client_bytes_received = 0
        self.client_bytes_sent = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.connections_cut_off = dict.fromkeys(CUT_OFF_REASONS, 0)
        self.connections_ended: defaultdict[str, int] = defaultdict(int)
        """Client connections that have ended, by cause (`connection.life.EndCause`)."""
        self.protocol_errors = 0
        self.tls_handshakes_failed = 0
        self.tls_server_names_rejected = dict.fromkeys(NAME_REJECTIONS, 0)
        self.upstream_failures = 0
        self.record_bytes: defaultdict[RecordKey, int] = defaultdict(int)
        """Bytes of record batches without the frames around them, counted by `count_records`. A topic's bytes are added
        when it is settled which topic it is."""
        self.stored_bytes: defaultdict[str, int] = defaultdict(int)
        """Part of the produced record bytes of diskless topics: of batches that were stored, each once, however often
        they came. By the client's rack."""
        self.unsettled_bytes: dict[str | bytes, defaultdict[Way, int]] = {}
        """Record bytes of topics as clients named them, by ID from Produce and Fetch v13 on (KIP-516), or by a name
        in a Produce: until the brokers have said which topic that is (`topic_names.py`). Clients can make up both."""
        self.near_read_bytes: defaultdict[tuple[str, str], int] = defaultdict(int)
        """Part of the fetched record bytes of classic topics: from a replica in the proxy's rack instead of the broker
        that the client asked, which is in another one. By (client's rack, serving rack)."""
        self.leader_reads: defaultdict[str, int] = defaultdict(int)
        """Partitions that clients asked a broker of another rack for and that their leader answered, by reason."""
        self.leader_read_bytes: defaultdict[str, int] = defaultdict(int)
        """Record bytes of them."""
        self.partition_errors: defaultdict[tuple[str, int], int] = defaultdict(int)
        """Errors that the proxy itself answered, by (API name, error code)."""
        self.produce_seconds = PacedHistogram(commit_interval_ms)
        self.fetch_seconds = PacedHistogram(commit_interval_ms)
        self.upload_seconds = Histogram(LATENCY_BOUNDS_S)
        self.commit_seconds = Histogram(LATENCY_BOUNDS_S)
        self.segment_bytes = Histogram(SIZE_BOUNDS_BYTES)
        self.fetch_storage_gets = Histogram(GETS_BOUNDS)
        """GETs that a Fetch with diskless topics caused itself. Data in the cache, or already being read for others,
        does not count."""
        self.storage_get_seconds = Histogram(LATENCY_BOUNDS_S)
        self.storage_errors = dict.fromkeys(STORAGE_OPERATIONS, 0)
        """Operations that failed, after the client library's own retries. A missing object does not count as a
        failure."""
        self.upload_failures = 0
        self.uploads_hedged = 0
        """Second uploads of segments whose first one took too long."""
        self.commit_failures = 0
        self.journal_append_seconds = Histogram(LATENCY_BOUNDS_S)
        """Time from the call of an append to the brokers' acknowledgement."""
        self.journal_bytes = 0
        """Bytes of the values that the journal has taken."""
        self.duplicate_batches = 0
        self.index_full_batches = 0
        """Batches that were rejected because the index of their shard is full."""
        self.refused_unseen_batches = 0
        """Batches that were rejected because their shard is fenced, or because their segment's object has been
        abandoned."""
        self.segments_deleted = 0
        self.throttled_seconds = {"produce": 0.0, "fetch": 0.0}
        """For which clients of diskless topics were muted by the brokers' quotas, by direction."""

        self.max_counted_topics = max_counted_topics
        self._counted_names: set[str] = set()
        self._names: dict[str | bytes, str] = {}
        """Names that topics are counted under, by what clients call it."""
        self._denied: OrderedDict[str | bytes, None] = OrderedDict()
        """Names and IDs that brokers don't know; the oldest is forgotten, and asked for again when it comes again."""

    def count_records(
        self, kind: str, direction: str, client_rack: str, serving_rack: str, topic: str | bytes, size: int
    ) -> None:
        """Bytes of records of one topic that went between a client and the rack that served it."""
        if not size:
            return
        name = self.settled_name(topic)
        if name is None and isinstance(topic, str) and (kind == "diskless" or direction == "fetch"):
            # The proxy knows its own topics, and brokers have records only of topics that there are.
            name = self._counted_as(topic)
        if name is None:
            name = self._unsettled(topic, (kind, direction, client_rack, serving_rack), size)
        if name is not None:
            self.record_bytes[kind, direction, client_rack, serving_rack, name] += size

    def settled_name(self, topic: str | bytes) -> str | None:
        """Return the name under which a topic is counted, which never changes; None as long as it is not settled."""
        return UNKNOWN_TOPIC if len(topic) > _LONGEST_TOPIC_NAME else self._names.get(topic)

    def settle(self, topic: str | bytes, name: str | None) -> None:
        """Count a topic's bytes so far, and later ones, under its name; None if brokers don't know it."""
        bytes_by_way = self.unsettled_bytes.pop(topic, None)
        if name is None:
            counted = UNKNOWN_TOPIC
            self._denied[topic] = None
            if len(self._denied) > _MAX_DENIED:
                self._denied.popitem(last=False)
        else:
            counted = self._counted_as(name)
            if len(self._names) < _MAX_NAMED:
                self._names[topic] = counted
        for way, size in (bytes_by_way or {}).items():
            self.record_bytes[*way, counted] += size

    def settle_all(self) -> None:
        """Count all that is not settled as unknown topics': the process ends."""
        for topic in list(self.unsettled_bytes):
            self.settle(topic, None)

    def all_record_bytes(self) -> list[tuple[Way, str | None, int]]:
        """Return everything that was counted; the topic's name is None if it is not settled."""
        settled = [(key[:4], key[4], size) for key, size in self.record_bytes.items()]
        unsettled = ((way, None, size) for ways in self.unsettled_bytes.values() for way, size in ways.items())
        return [*settled, *unsettled]

    def _unsettled(self, topic: str | bytes, way: Way, size: int) -> str | None:
        """Put bytes aside until their topic is settled; if it never will be, return the name that they are counted
        under."""
        if topic in self._denied:
            return UNKNOWN_TOPIC
        ways = self.unsettled_bytes.get(topic)
        if ways is None:
            if len(self.unsettled_bytes) >= self.max_counted_topics or len(self._names) >= _MAX_NAMED:
                return OTHER_TOPICS
            ways = self.unsettled_bytes[topic] = defaultdict(int)
        ways[way] += size
        return None

    def _counted_as(self, name: str) -> str:
        """Return the name of a topic that there is, or what stands for those beyond `max_counted_topics`."""
        if name in self._counted_names:
            return name
        if len(self._counted_names) >= self.max_counted_topics:
            return OTHER_TOPICS
        self._counted_names.add(name)
        self._names[name] = name
        return name

    def count_request(self, api_key: int) -> None:
        """One request of a client."""
        self.requests[api_key] += 1

    def count_answer(self, api_key: int, seconds: float) -> None:
        """Count one answer that went to the client completely, this many seconds after its request."""
        counted = self.api_seconds.get(api_key)
        if counted is None:
            paced = api_key in PACED_APIS
            counted = PacedHistogram(self._commit_interval_ms) if paced else Histogram(API_BOUNDS_S)
            self.api_seconds[api_key] = counted
        counted.observe(seconds)

    def pace(self, commit_interval_ms: int) -> None:
        """Take over another `diskless.append.commit.interval.ms`: requests wait for that from now on."""
        self._commit_interval_ms = commit_interval_ms
        for counted in (self.produce_seconds, self.fetch_seconds, *self.api_seconds.values()):
            if isinstance(counted, PacedHistogram):
                counted.pace(commit_interval_ms)
