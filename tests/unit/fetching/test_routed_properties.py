"""Whatever replicas answer, a routed Fetch gets an answer that the leader could have given."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.replicas.choice import LeaderReason
from proxy.wire.partition_states import PartitionState
from tests.unit.fetching.broker_model import ALSO_NEAR, LEADER, NEAR, Log, Proxied
from tests.unit.fetching.test_routed import asked, batches

FENCED_LEADER_EPOCH = 74
_ERRORS = st.sampled_from([0, 0, 0, 1, 3, 5, 6, 9, 29, 56, 74, 75, 78, 100, -1])
_SIZES = st.lists(st.integers(20, 200), max_size=6)


@st.composite
def _partitions(draw: st.DrawFn) -> tuple[Log, dict[int, Log]]:
    """A leader's log, and followers' that lag, have another log start, or are at odds with it."""
    whole = batches(*draw(_SIZES))
    committed = draw(st.integers(0, len(whole)))
    leader = Log(whole, high_watermark=3 * committed, log_start=3 * draw(st.integers(0, committed)))
    leader.error_code = draw(st.sampled_from([0, 0, 0, 0, 6]))
    followers = {}
    for node in draw(st.sets(st.sampled_from([NEAR, ALSO_NEAR]))):
        replicated = draw(st.integers(0, len(whole)))
        known = 3 * draw(st.integers(0, min(committed, replicated)))
        followers[node] = Log(
            whole[:replicated],
            log_start=draw(st.sampled_from([0, 0, min(leader.log_start, 3 * replicated)])),
            high_watermark=known,
            error_code=draw(_ERRORS),
            preferred=draw(st.sampled_from([-1, -1, -1, 2])),
            hidden=draw(st.integers(0, 9)) == 0,
        )
    return leader, followers


@settings(max_examples=80, deadline=None)
@given(data=st.data(), version=st.integers(4, 18), logs=st.lists(_partitions(), min_size=1, max_size=5))
def test_the_answer_is_one_that_the_leader_could_have_given(
    data: st.DataObject, version: int, logs: list[tuple[Log, dict[int, Log]]]
) -> None:
    """At that or an earlier high watermark of the same log, whatever the replicas say."""
    offsets = [data.draw(st.integers(0, leader.end + 4)) for leader, _ in logs]
    places = data.draw(st.permutations([("tu"[index % 2], index) for index in range(len(logs))]))
    max_bytes = data.draw(st.integers(0, 1200))
    failing = data.draw(
        st.dictionaries(st.sampled_from([NEAR, ALSO_NEAR]), st.sampled_from(["reason", "garbage"]), max_size=1)
    )

    async def run() -> None:
        states = {
            index: PartitionState(LEADER, 5, (LEADER, *followers), (LEADER, *followers))
            for index, (_, followers) in enumerate(logs)
        }
        proxied = Proxied({name: {index: states[index] for _, index in places} for name in "tu"})
        for name, index in places:
            for node, log in ((LEADER, logs[index][0]), *logs[index][1].items()):
                proxied.brokers[node].logs[name, index] = log
                proxied.brokers[node].logs[name.encode().ljust(16, b"\0"), index] = log
        for node, how in failing.items():
            setattr(proxied.brokers[node], how, LeaderReason.TIMED_OUT if how == "reason" else b"\1")
        request = asked(
            version,
            *((name, index, offsets[index]) for name, index in places),
            max_bytes=max_bytes,
            partition_max_bytes=data.draw(st.integers(1, 1200)),
            min_bytes=data.draw(st.integers(0, 300)),
            max_wait_ms=data.draw(st.sampled_from([0, 2])),
        )
        response = await proxied.fetch(request)
        assert not proxied.memory.used_bytes
        if response is None:
            assert not any(followers for _, followers in logs)
            return
        assert (response.error_code, response.session_id, response.throttle_ms) == (0, 0, 0)
        found = [(topic.topic, one) for topic in response.topics for one in topic.partitions]
        assert [(topic, one.index) for topic, one in found] == [
            (topic.topic, one.index) for topic in request.topics for one in topic.partitions
        ]
        total = sum(max(one.records_length, 0) for _, one in found)
        full = [one for _, one in found if one.records_length > 0]
        for _, one in found:
            leader, offset = logs[one.index][0], offsets[one.index]
            error_code, _ = leader.read(offset, 1 << 20, True)
            # A follower learns of a new log start, and of new leaders, a little later.
            fenced = one.error_code == FENCED_LEADER_EPOCH in {log.error_code for log in logs[one.index][1].values()}
            assert one.error_code == error_code or fenced or (one.error_code == 0 and offset <= leader.end)
            earlier = replace(leader, log_start=0, error_code=0)
            assert earlier.read(offset, 1 << 20, True)[1].startswith(b"".join(one.records))
            assert one.high_watermark <= leader.high_watermark
            assert not (fenced and one.records_length > 0)
            assert one.preferred_read_replica == -1
        if total > max_bytes:
            assert len(full) == 1
            (_, _, first) = next(
                batch for batch in logs[full[0].index][0].batches if batch[1] >= offsets[full[0].index]
            )
            assert total == len(first)

    asyncio.run(run())
