"""Short visits of every client library: create a topic, write to it, read it in another rack, query it, delete it.

The libraries and the queries are those of the conformance tests.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from proxy.demo.stack import Stack
from tests.conformance.clients import CLIENTS
from tests.conformance.model import Ability, Client, ClientError, Consuming, Producing, Received, Sent
from tests.conformance.ways import take
from tests.retention_under_load.books import Problems
from tests.support.records import Sample, samples
from tests.support.topics import DISKLESS, KINDS, offsets, replica_count
from tests.support.worker import Worker

PARTITIONS = 2
RECORDS = (5, 40)
ADMIN_SECONDS = 90.0
ATTEMPTS = 3
IMPATIENT = {"KafkaTimeoutError", "KafkaConnectionError", "_UNKNOWN_TOPIC"}
"""Client timeouts for this run. The conformance tests let clients wait for only three or five seconds, and a machine
that runs all this at once may stall for that long."""
STRICT = "all"
"""Acks of producers whose records must arrive exactly once."""


def insist(attempt: Callable[[], None], harmless: frozenset[int], what: str) -> None:
    """Repeat an action until it succeeds, or fails because an earlier try succeeded. Raises TimeoutError."""
    deadline = time.monotonic() + ADMIN_SECONDS
    while True:
        try:
            return attempt()
        except KafkaException as error:
            if error.args[0].code() in harmless:
                return None
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: {error}") from error
        time.sleep(0.3)


def create(bootstrap: str, name: str, partitions: int, replicas: int, everywhere: Sequence[str]) -> None:
    """Create a topic and wait until all given proxies know it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topic = NewTopic(name, partitions, replicas)
    harmless = frozenset({KafkaError.TOPIC_ALREADY_EXISTS})
    insist(lambda: admin.create_topics([topic], request_timeout=20)[name].result(30), harmless, f"create {name}")
    for one in everywhere:
        insist(lambda one=one: _known(one, name), frozenset(), f"{name} at {one}")  # type: ignore[misc]


def _known(bootstrap: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    found = client.list_topics(topic, timeout=20).topics[topic]
    if found.error is not None or not all(one.leader >= 0 for one in found.partitions.values()):
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))


def delete(bootstrap: str, name: str) -> None:
    """Delete a topic; it counts as success if it does not exist."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    harmless = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART})
    insist(lambda: admin.delete_topics([name], request_timeout=20)[name].result(30), harmless, f"delete {name}")


class Errands(Worker):
    """Run one errand after the other."""

    def __init__(self, stack: Stack, seed: int, calm: threading.Lock, problems: Problems, pause_seconds: float) -> None:
        """Hold `calm` during an errand: faults that take it would break clients, while long-lived clients must survive
        them."""
        super().__init__("errands", problems.report)
        self.done: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        """Errands that started over because the client gave up."""
        self.records = 0
        self._stack, self._calm, self._problems, self._pause_seconds = stack, calm, problems, pause_seconds
        self._chance = random.Random(seed)
        self._clients: list[Client] = []

    def work(self) -> None:
        """Run errand after errand."""
        while not self.ended.is_set():
            if not self._clients:  # every client gets its turn
                self._clients = self._chance.sample(CLIENTS, len(CLIENTS))
            client = self._clients.pop()
            for attempt in range(ATTEMPTS):
                with self._calm:
                    try:
                        self._errand(client)
                        break
                    except (ClientError, KafkaException, AssertionError, TimeoutError) as error:
                        if str(error) in IMPATIENT and attempt < ATTEMPTS - 1:
                            self.repeated[f"{client.name}: {error}"] += 1
                            continue
                        self._problems.report(f"errand of {client.name}: {error!r}")
                        break
            self.ended.wait(self._pause_seconds)

    def _how(self, client: Client, topic: str) -> Producing:
        chance = self._chance
        compression = chance.choice(list(client.compressions))
        if Ability.TRANSACTIONS in client.abilities and chance.random() < 0.5:
            return Producing(compression, idempotent=True, transaction=f"{topic}-writer", commit=chance.random() < 0.7)
        acks = chance.choice(("0", "1", STRICT, STRICT))
        if acks == "0" and Ability.PRODUCE not in client.abilities:
            acks = STRICT  # the client ends before its records are sent
        return Producing(compression, acks, idempotent=acks == STRICT and Ability.IDEMPOTENCE in client.abilities)

    def _errand(self, client: Client) -> None:
        stack, chance = self._stack, self._chance
        kind = chance.choice(KINDS)
        racks = chance.sample(list(stack.options.racks), len(stack.options.racks))
        # The proxy of the client's own rack comes first; the others help if that one is restarting.
        writers, readers = (
            ",".join(stack.bootstrap(rack) for rack in order) for order in (racks, [*racks[1:], racks[0]])
        )
        topic = f"{'diskless.' if kind == DISKLESS else ''}errand-{uuid.uuid4().hex[:8]}"
        create(writers, topic, PARTITIONS, replica_count(stack), [stack.bootstrap(rack) for rack in racks])
        how = self._how(client, topic)
        sent: dict[int, list[Sample]] = {
            partition: client.express(
                samples(chance.randint(*RECORDS), f"{topic}-{partition}", 2_000, plain="python" in client.name)
            )
            for partition in range(PARTITIONS)
        }
        sent_records = client.produce(writers, topic, sent, how)
        got = self._read(client, readers, topic, how, sent)
        self._judge(client, topic, how, sent, sent_records, got)
        self._ask(client, readers, topic)
        delete(readers, topic)
        what = "transaction" if how.transaction else f"acks {how.acks}"
        self.done[f"{client.name}: {kind}, {what}"] += 1
        self.records += len(got)

    def _read(
        self, client: Client, bootstrap: str, topic: str, how: Producing, sent: dict[int, list[Sample]]
    ) -> list[Received]:
        if how.idempotent:
            count = sum(map(len, sent.values())) if how.commit else 0
        else:  # keep what is stored: a lost answer may have doubled a record, and acks 0 may have lost some
            count = self._stored(topic, sent, at_least=how.acks != "0")
        if not count:
            return []
        kip_848 = Ability.KIP_848 in client.abilities and self._chance.random() < 0.5
        how_read = Consuming(topic, group=f"{topic}-readers", kip_848=kip_848, read_committed=bool(how.transaction))
        return take(client, bootstrap, how_read, count)

    def _stored(self, topic: str, sent: dict[int, list[Sample]], *, at_least: bool) -> int:
        """Return the records up to the high watermarks, which lag the answers of acks 1; wait for `at_least`
        records."""
        deadline = time.monotonic() + ADMIN_SECONDS
        while True:
            stored = {partition: offsets(self._stack, topic, partition)[1] for partition in sent}
            behind = at_least and any(stored[partition] < len(records) for partition, records in sent.items())
            if not behind or time.monotonic() > deadline:
                return sum(stored.values())
            time.sleep(0.1)

    def _judge(
        self,
        client: Client,
        topic: str,
        how: Producing,
        sent: dict[int, list[Sample]],
        sent_records: dict[int, list[Sent]],
        got: list[Received],
    ) -> None:
        def wrong(text: str) -> None:
            self._problems.report(f"errand of {client.name} ({topic}, {how}): {text}")

        for partition, wanted in sent.items():
            if errors := {one.error for one in sent_records.get(partition, ()) if one.error}:
                wrong(f"records failed: {errors}")
            read = [one for one in got if one.partition == partition]
            if any(one.offset >= two.offset for one, two in pairwise(read)):
                wrong(f"partition {partition} was not read in order")
            values = [(one.key, one.value) for one in read]
            expected = [(one.key, one.value) for one in wanted] if how.commit else []
            if how.idempotent:
                if values != expected:
                    wrong(f"partition {partition} has {len(values)} records, not the {len(expected)} that were sent")
            elif foreign := set(values) - set(expected):
                wrong(f"partition {partition} has records that nobody sent: {list(foreign)[:2]}")
            elif how.acks != "0" and (missing := set(expected) - set(values)):
                wrong(f"partition {partition} lacks {len(missing)} acknowledged records")

    def _ask(self, client: Client, bootstrap: str, topic: str) -> None:
        """Make admin calls; the conformance tests check their answers."""
        if Ability.DESCRIBE in client.abilities:
            assert len(client.describe_topic(bootstrap, topic)) == PARTITIONS
        if Ability.LIST_OFFSETS in client.abilities:
            client.list_offsets(bootstrap, topic, 0, -1)
        if Ability.CONFIGS in client.abilities:
            client.alter_configs(bootstrap, topic, {"retention.ms": "3600000"})
            client.describe_configs(bootstrap, topic)
        if Ability.GROUP_ADMIN in client.abilities:
            delete_group(client, bootstrap, f"{topic}-readers")


def delete_group(client: Client, bootstrap: str, group: str) -> None:
    """Delete a group whose last member has just left; it counts as success if it does not exist. Raises ClientError."""
    deadline = time.monotonic() + ADMIN_SECONDS
    while True:
        try:
            return client.delete_group(bootstrap, group)
        except ClientError as error:
            words = str(error).upper().replace("_", "")
            if "NOTFOUND" in words:
                return None
            if "NONEMPTY" not in words or time.monotonic() > deadline:
                raise
        time.sleep(0.3)
