"""Rewritten topics that are used again: always the same as a fresh rewrite, and within their memory.

The scenario is a proxy whose clients, registry, cluster and fleet change at random. Each answer is compared with that
of a proxy that reuses nothing. The same scenario runs with one part of the key left out: it has to notice each.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.rewrite_metadata import RewriteMetadata
from proxy.routing.addresses import Addresses
from proxy.routing.leaders import LeaderChoice
from proxy.wire import metadata, metadata_reuse
from proxy.wire.metadata import Broker, rewrite_metadata_response
from proxy.wire.metadata_reuse import RewrittenTopics
from proxy.wire.partition_leaders import SoleLeader
from proxy.wire.steps import at_once
from tests.support.questions import filled
from tests.unit.brokers_double import Brokers
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import parts_of, settings_of
from tests.unit.wire.proposed import METADATA_REQUEST
from tests.unit.wire.trees import encode, request_type, response_type

METADATA = 3
VERSIONS = (0, 4, 9, 12, 13, 14)
NAMES = ("a", "b", "c")
SCENARIOS = 15
STEPS = 40


def answer(version: int, changed: int) -> bytes:
    """Encode an answer; `changed` is one of those that are as long as each other and differ in one byte."""
    topics = []
    for number, name in enumerate(NAMES):
        partitions = [{"partition_index": index, "leader_id": 1, "replica_nodes": [1, 2]} for index in range(4)]
        partitions[1]["leader_id"] = 2 if changed == 1 else 1
        error = 5 if changed == 2 and not number else 0
        named = "z" if changed == 3 and not number else name
        topics.append({"name": named, "partitions": partitions, "error_code": error})
    entity = response_type(METADATA, min(version, 13))
    return encode(entity, filled(entity, {"brokers": [], "topics": topics}))


ANSWERS = {(version, changed): answer(version, changed) for version in VERSIONS for changed in range(4)}


class Place:
    """Racks, fleet and cluster of the clients, as the scenario sets them."""

    def __init__(self) -> None:
        self.rack = "rack-a"
        self.named_after = "one"
        self.cluster: Any = Brokers({})
        self.set_brokers((1, 2, 3))

    def set_brokers(self, nodes: tuple[int, ...]) -> None:
        racks = {1: "rack-a", 2: "rack-b", 3: "rack-b"}
        self.cluster.view = Brokers({node: Broker(node, "broker", 9092, racks[node]) for node in nodes}).view

    def of(self, *_: object) -> str:
        return self.rack

    def named(self, rack: str | None) -> str | None:
        return rack or None

    def learn(self, *_: object) -> None:
        return None

    def on_any_proxy(self, *_: object) -> None:
        return None

    def listener(self, node: int, rack: str, client: str, came_by: object) -> tuple[str, int]:
        return f"{self.named_after}-of-{rack}", node


class Scenario:
    """Two proxies with the same parts: one reuses, one does not."""

    def __init__(self, seed: int) -> None:
        self.random, self.place = Random(seed), Place()
        choice = self.random.choice(("sticky", "round_robin", "partition_hash", "replica"))
        self.topics = parts_of().topics.topics
        self.registry_version = 1
        self.change_registry()
        self.reusing, self.fresh = (self.proxy(choice, size) for size in (1 << 20, 0))

    def proxy(self, choice: str, reuse_bytes: int) -> RewriteMetadata:
        settings, place = settings_of(kip1163_api=True, limits={"metadata_reuse_bytes": reuse_bytes}), self.place
        racks: Any = place
        addresses = Addresses(fleet=racks, racks=racks, leader_choice=LeaderChoice(choice), cluster=place.cluster)
        parts = parts_of(settings)
        return RewriteMetadata(
            settings.fleet,
            settings.limits,
            addresses=addresses,
            auto_creation=parts.creation.auto_creation,
            cluster=place.cluster,
            fleet=racks,
            racks=racks,
            topics=self.topics,
            turns=parts.process.turns,
        )

    def change_registry(self) -> None:
        self.registry_version += 1
        named = self.random.sample(NAMES, self.random.randint(1, 2))
        entries = tuple(DisklessTopic(name, bytes(16), 4, "live") for name in sorted(named))
        self.topics.take(RegistrySnapshot(self.registry_version, entries))

    def change(self) -> None:
        """Change one thing at random."""
        random, place = self.random, self.place
        what = random.randrange(4)
        if what == 0:
            self.change_registry()
        elif what == 1:
            place.rack = random.choice(("rack-a", "rack-b", "rack-c"))
        elif what == 2:
            place.set_brokers(random.choice(((1, 2, 3), (1, 2), (1, 3), (2, 3))))
        else:
            place.named_after = random.choice(("one", "two"))

    def differs(self) -> bool:
        """Return whether a client gets another answer of the proxy that reuses."""
        version, changed = self.random.choice(VERSIONS), self.random.randrange(4)
        entity = METADATA_REQUEST if version == 14 else request_type(METADATA, version)
        body = encode(entity, filled(entity, {"topics": []}))
        host = self.random.choice(("10.0.0.1", "10.0.0.2"))
        got = []
        for proxy in (self.reusing, self.fresh):
            client: Any = ClientDouble()
            client.session.host = host
            proxy.metadata(client, request_of(METADATA, version, body))
            got.append(client.rewritten(ANSWERS[version, changed]))
        return got[0] != got[1]

    def any_differs(self) -> bool:
        """Run the scenario; it ends at the first difference, which may be an answer that can't be written."""
        for _ in range(STEPS):
            if self.random.random() < 0.4:
                self.change()
            if self.differs():
                return True
        return False


@pytest.fixture(autouse=True)
def short_answers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_reuse, "_SHORTEST_BYTES", 0)


async def test_a_reused_answer_is_always_that_of_a_fresh_rewrite() -> None:
    reused = 0
    for seed in range(SCENARIOS):
        scenario = Scenario(seed)
        assert not scenario.any_differs(), seed
        assert not len(scenario.fresh._rewritten)
        reused += len(scenario.reusing._rewritten)
    assert reused > SCENARIOS, "the scenarios reuse answers"


@pytest.mark.parametrize("left_out", ["state", "version", "leaders", "bytes"])
async def test_the_scenarios_notice_each_part_of_the_key(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key_of = RewrittenTopics.key

    def key(self: RewrittenTopics, came: memoryview, version: int, leaders: Any) -> Any:
        if left_out == "state":
            self._state = lambda: "the same"
        found = key_of(self, came, version, leaders)
        if found is None or left_out in ("state", "bytes"):
            return found
        return found._replace(**{left_out: None})

    def find(self: RewrittenTopics, key: Any, came: memoryview) -> Any:
        found = self._results.get(key)
        return None if found is None else found.buffers

    monkeypatch.setattr(RewrittenTopics, "key", key)
    if left_out == "bytes":
        monkeypatch.setattr(metadata_reuse, "crc32c", lambda came: 0)
        monkeypatch.setattr(RewrittenTopics, "find", find)
    assert any(Scenario(seed).any_differs() for seed in range(SCENARIOS))


def rewritten_in_steps(reuse: RewrittenTopics, node: int, body: bytes = ANSWERS[12, 0]) -> Any:
    return rewrite_metadata_response.steps(
        body,
        12,
        address_of=lambda node_id: ("proxy", node_id),
        is_diskless=lambda name, topic_id: name == "a",
        leaders=SoleLeader(node),
        reuse=reuse,
    )


def test_a_rewrite_that_begins_before_a_change_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "AT_A_TIME", 1)
    state = ["before"]
    reuse = RewrittenTopics(lambda: 1 << 20, lambda: state[0])
    under_way = rewritten_in_steps(reuse, 1)
    next(under_way)
    state[0] = "after"
    at_once(under_way)
    assert not len(reuse)
    at_once(rewritten_in_steps(reuse, 1))
    assert len(reuse) == 1


def test_results_are_bounded_by_their_bytes_and_the_oldest_goes_first() -> None:
    most = [1 << 20]
    reuse = RewrittenTopics(lambda: most[0], lambda: "same")
    at_once(rewritten_in_steps(reuse, 1))
    size = reuse.used_bytes
    assert len(ANSWERS[12, 0]) < size < 2 * len(ANSWERS[12, 0])
    most[0] = 3 * size
    for node in (2, 3, 1, 4):
        at_once(rewritten_in_steps(reuse, node))
    assert [key.leaders.leader for key in reuse._results] == [3, 1, 4]
    assert reuse.used_bytes == 3 * size
    most[0] = size - 1
    at_once(rewritten_in_steps(reuse, 5))
    assert (reuse.used_bytes, len(reuse)) == (0, 0), "neither fits any more"
    most[0] = 1 << 20
    at_once(rewritten_in_steps(reuse, 1))
    most[0] = 0
    at_once(rewritten_in_steps(reuse, 1))
    assert (reuse.used_bytes, len(reuse)) == (0, 0), "a reload that turns it off frees the memory"


def test_a_changed_state_drops_the_results_of_the_old_one() -> None:
    state = ["before"]
    reuse = RewrittenTopics(lambda: 1 << 20, lambda: state[0])
    for node in (1, 2):
        at_once(rewritten_in_steps(reuse, node))
    state[0] = "after"
    at_once(rewritten_in_steps(reuse, 1))
    assert [(key.state, key.leaders.leader) for key in reuse._results] == [("after", 1)]
