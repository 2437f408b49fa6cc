"""Histories of writes, losses and restarts with several proxies: no offset is assigned twice, no healthy store is
fenced.

Losses are counted exactly, however late they are noticed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator import scripts
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import NO_PRODUCER_ID, FindRequest, PartitionRun, ProposedBatch
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import Losses, coordinator_of
from tests.tiers import Tier

TOPIC = bytes(16)
LOGS = 3
PROXIES = 3
GAP = 10
EXAMPLES_OF_TIER = {Tier.QUICK: 20, Tier.FULL: 60}
proxies = st.integers(0, PROXIES - 1)


class Histories(RuleBasedStateMachine):
    """One shard. `acknowledged` has the segment of each log and offset that a proxy got; some are given up later."""

    store: Store
    all_have_their_say = True
    """True if every proxy checks a restarted server before any of them writes (`redis.settle_ms`)."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.losses = Losses(self.store.port)
        self.losses.empty()
        self.settings = config.Redis(url=self.store.url, shards=1, settle_ms=0)
        self.client: Redis = self.loop.run_until_complete(connect(self.settings))
        self.proxies = [coordinator_of(self.client, self.settings) for _ in range(PROXIES)]
        self.offsets_given: dict[tuple[int, int], bytes] = {}
        self.segments = 0
        self.written_at: list[int] = []
        """Writes that the store had acknowledged when each copy was made."""
        self.writes = 0
        self.lost = False
        self.records: dict[int, int] = {}
        """Records of each acknowledged commit."""
        self.has: list[int] = []
        """Commits that the store has, and those of each copy."""
        self.copies_have: list[list[int]] = []
        self.given_up: set[int] = set()
        self.run(self.proxies[0].create_logs(TOPIC, range(LOGS)))
        self.everyone_looks()
        self.copy()

    def teardown(self) -> None:
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()
        self.losses.close()

    def run(self, work):
        return self.loop.run_until_complete(work)

    def everyone_looks(self) -> None:
        for one in self.proxies:
            if passed_over := one.fence.passed_over():
                self.run(one.shards.missing(passed_over))
                one.fence.asked(passed_over)
            self.run(one.shards.touch([0]))

    def commit_by(self, proxy: int, log: int, records: int) -> bool:
        self.segments += 1
        segment = self.segments.to_bytes(16, "big")
        run = PartitionRun(TOPIC, log, 1, (ProposedBatch(10, records, 1, NO_PRODUCER_ID, -1, -1),))
        (answer,) = self.run(self.proxies[proxy].commit(segment, [run]))
        if answer.error_code == KAFKA_STORAGE_ERROR:
            return False
        assert answer.error_code == NONE
        self.writes += 1
        self.records[self.segments] = records
        self.has.append(self.segments)
        for offset in range(answer.batches[0].base_offset, answer.batches[0].base_offset + records):
            assert self.lost or (log, offset) not in self.offsets_given, "an offset was assigned twice"
            self.offsets_given[log, offset] = segment
        return True

    @rule(proxy=proxies, log=st.integers(0, LOGS - 1), records=st.integers(1, 3))
    def commit(self, proxy: int, log: int, records: int) -> None:
        assert self.commit_by(proxy, log, records) == (not self.lost)

    @rule(proxy=proxies, log=st.integers(0, LOGS - 1))
    def find(self, proxy: int, log: int) -> None:
        (answer,) = self.run(self.proxies[proxy].find([FindRequest(TOPIC, log, 0, 1)]))
        assert answer.error_code == (KAFKA_STORAGE_ERROR if self.lost else NONE)
        if answer.rows:
            assert answer.rows[0].segment == self.offsets_given[log, answer.rows[0].base_offset]

    @rule(proxy=proxies)
    @precondition(lambda self: not self.lost)
    def keep_house(self, proxy: int) -> None:
        """Make a write whose loss harms nothing."""
        segment = os.urandom(16)
        assert self.run(self.proxies[proxy].tombstone([segment])) == [segment]

    @rule()
    @precondition(lambda self: not self.lost)
    def copy(self) -> None:
        self.losses.copy()
        self.written_at.append(self.writes)
        self.copies_have.append(list(self.has))

    @rule(back=st.integers(0, 2))
    @precondition(lambda self: not self.lost)
    def restart(self, back: int) -> None:
        """Restart on one of the newest copies."""
        number = max(0, len(self.losses) - 1 - back)
        self.losses.restore(number)
        self.has = list(self.copies_have[number])
        self.lost = self.written_at[number] < self.writes
        if self.all_have_their_say:
            self.everyone_looks()

    @rule(proxy=proxies)
    def another_proxy_starts(self, proxy: int) -> None:
        """The new proxy compares the store with the stored state."""
        for one in self.proxies:
            self.run(self.proxies[proxy].shards.missing(one.fence.states()))
        known = max((one.fence.states()[0] for one in self.proxies), key=lambda state: state.sequence)
        self.proxies[proxy] = coordinator_of(self.client, self.settings)
        self.proxies[proxy].fence.learn(0, known)
        self.run(self.proxies[proxy].shards.touch([0]))

    @rule(proxy=proxies)
    def hear(self, proxy: int) -> None:
        """Deliver an announcement of the store's present state, whether or not this proxy has reported what it
        knows."""
        (seen,) = self.run(self.proxies[0].shards.look())
        self.proxies[proxy].fence.learn(0, seen.state)

    @rule()
    @precondition(lambda self: self.lost)
    def accept(self) -> None:
        lost = self.records.keys() - set(self.has) - self.given_up
        (seen,) = self.run(self.proxies[0].shards.look())
        assert seen.offsets_lost == sum(self.records[commit] for commit in lost)
        self.given_up |= lost
        self.run(self.proxies[0].shards.unfence(0, GAP, [(TOPIC, log) for log in range(LOGS)]))
        self.lost = False
        self.writes += 1  # a copy from before it is one more loss
        self.everyone_looks()
        self.copy()

    @invariant()
    def the_fence_is_up_only_where_something_was_lost(self) -> None:
        self.everyone_looks()
        assert [bool(one.fence.fenced) for one in self.proxies] == [self.lost] * PROXIES


class Unwatched(Histories):
    """Histories without the watch: proxies write as soon as a server runs. A proxy that knew of a loss notices it."""

    all_have_their_say = False

    @invariant()
    def the_fence_is_up_only_where_something_was_lost(self) -> None:
        """The check comes at its own time."""

    @rule(proxy=proxies, log=st.integers(0, LOGS - 1), records=st.integers(1, 3))
    def commit(self, proxy: int, log: int, records: int) -> None:
        assert self.commit_by(proxy, log, records) or self.lost

    @rule(proxy=proxies, log=st.integers(0, LOGS - 1))
    def find(self, proxy: int, log: int) -> None:
        (answer,) = self.run(self.proxies[proxy].find([FindRequest(TOPIC, log, 0, 1)]))
        assert answer.error_code == NONE or self.lost

    @rule()
    @precondition(lambda self: self.lost)
    def accept(self) -> None:
        """However much was written since: when all proxies have checked, the loss is known."""
        self.everyone_looks()
        self.everyone_looks()  # the first of them may have checked before the one that knew
        assert [bool(one.fence.fenced) for one in self.proxies] == [True] * PROXIES
        super().accept()


def run_histories(store: Store, machine: type[Histories], examples: int, *, planted: bool = False) -> None:
    machine.store = store
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            derandomize=planted,
            phases=[Phase.generate] if planted else list(Phase),
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("machine", [Histories, Unwatched])
def test_histories(losable: Store, machine: type[Histories], pytestconfig: pytest.Config) -> None:
    run_histories(losable, machine, EXAMPLES_OF_TIER[pytestconfig.getoption("tier")])


@pytest.mark.parametrize(
    ("machine", "script", "right", "wrong"),
    [
        (Unwatched, "fence", "here and here + LIFE_BYTES <= #lives", "false"),
        (Unwatched, "fence", "while at > 0 and not here do", "do"),
        (Histories, "unfence", "log_end = log_end + raise", "log_end = log_end + 0"),
        (Histories, "fence", "HDEL', meta_key, 'fenced', 'lost'", "HDEL', meta_key, 'lost'"),
    ],
)
def test_a_planted_error_is_found(
    losable: Store, machine: type[Histories], script: str, right: str, wrong: str, tmp_path: Path, monkeypatch
) -> None:
    shutil.copytree(scripts._DIRECTORY, tmp_path / "lua")
    planted = tmp_path / "lua" / f"{script}.lua"
    text = planted.read_text()
    assert text.count(right) == 1
    planted.write_text(text.replace(right, wrong))
    monkeypatch.setattr(scripts, "_DIRECTORY", tmp_path / "lua")
    scripts.script.cache_clear()
    try:
        with pytest.raises((AssertionError, BaseExceptionGroup)):
            run_histories(losable, machine, 3_000, planted=True)
    finally:
        scripts.script.cache_clear()
