"""Classic partitions on a foreign listener: read near, and answered as their leader would."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from proxy.fetching.route import ROUTER
from proxy.replicas.choice import LeaderReason
from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, parse_fetch_request
from proxy.wire.fetch_response import FetchResponse, PartitionFetched, TopicFetched, build_fetch_response
from proxy.wire.partition_states import PartitionState
from tests.unit.fetching.broker_model import ALSO_NEAR, LEADER, NEAR, Log, Proxied, Reader, leader_reads

TOPIC_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR, UNKNOWN_LEADER_EPOCH = 29, 56, 75
FETCH_SESSION_ID_NOT_FOUND, OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_SERVER_ERROR = (
    70,
    1,
    6,
    74,
    -1,
)
_IN_SYNC = PartitionState(LEADER, 5, (LEADER, NEAR), (LEADER, NEAR))


def batches(*sizes: int) -> list[tuple[int, int, bytes]]:
    """Return batches of three offsets each."""
    made = []
    for number, size in enumerate(sizes):
        head = (3 * number).to_bytes(8, "big") + (size - 12).to_bytes(4, "big")
        made.append((3 * number, 3 * number + 2, head + bytes([number]) * (size - 12)))
    return made


def asked(version: int, *partitions: tuple[str, int, int], **values: Any) -> FetchRequest:
    """`partitions`: (topic, index, offset)."""
    topics = [
        TopicFetch(
            topic if version < 13 else topic.encode().ljust(16, b"\0"),
            [PartitionFetch(index, -1, offset, -1, -1, values.get("partition_max_bytes", 1 << 20))],
        )
        for topic, index, offset in partitions
    ]
    request = FetchRequest(version, -1, 0, 1, 1 << 20, 0, 0, -1, topics, [], "")
    return request._replace(**{name: value for name, value in values.items() if name != "partition_max_bytes"})


def one_partition(version: int = 12) -> tuple[Proxied, Log, Log]:
    """Partition 0 of topic `t`, the leader's log and the follower's, alike."""
    proxied = Proxied({"t": {0: _IN_SYNC}})
    logs = [Log(batches(100, 200, 300), high_watermark=9) for _ in range(2)]
    for node, log in zip((LEADER, NEAR), logs, strict=True):
        for topic in ("t", b"t".ljust(16, b"\0")):
            proxied.brokers[node].logs[topic, 0] = log
    return proxied, logs[0], logs[1]


def only_partition(response: FetchResponse | None) -> Any:
    assert response is not None
    ((partition,),) = (topic.partitions for topic in response.topics)
    return partition


@pytest.mark.parametrize("lagging", [NEAR, ALSO_NEAR])
async def test_every_client_reads_from_the_most_caught_up_replica(lagging: int) -> None:
    """Until the other one has caught up. Then clients are spread over both."""
    isr = (LEADER, NEAR, ALSO_NEAR)
    proxied = Proxied({"t": {0: PartitionState(LEADER, 5, isr, isr)}})
    logs = {node: Log(batches(100, 200, 300), high_watermark=9) for node in isr}
    for node, log in logs.items():
        for topic in ("t", b"t".ljust(16, b"\0")):
            proxied.brokers[node].logs[topic, 0] = log

    async def read_from() -> set[int]:
        """The near brokers that some of many clients read from."""
        for number in range(30):
            proxied.session.host = f"10.0.0.{number}"
            proxied.session.forget(ROUTER)
            only_partition(await proxied.fetch(asked(12, ("t", 0, 0))))
        found = {node for node in (NEAR, ALSO_NEAR) if proxied.brokers[node].asked}
        for broker in proxied.brokers.values():
            broker.asked.clear()
        return found

    assert await read_from() == {NEAR, ALSO_NEAR}
    log_ends = proxied.log_ends
    await log_ends.look()
    logs[lagging].batches.pop()
    await log_ends.look()
    assert await read_from() == {NEAR, ALSO_NEAR} - {lagging}
    logs[lagging].batches = batches(100, 200, 300)
    await log_ends.look()
    assert await read_from() == {NEAR, ALSO_NEAR}


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_is_read_near(version: int) -> None:
    proxied, leader, follower = one_partition()
    follower.high_watermark = leader.high_watermark = 6
    found = only_partition(await proxied.fetch(asked(version, ("t", 0, 1))))
    assert b"".join(found.records) == b"".join(data for _, _, data in batches(100, 200))
    assert (found.error_code, found.high_watermark) == (0, 6)
    assert not proxied.brokers[LEADER].asked
    assert not proxied.forwarded
    (near,) = proxied.brokers[NEAR].asked
    assert (near.version, near.topics[0].topic) == (max(version, 13), b"t".ljust(16, b"\0"))
    assert (near.replica_id, near.session_id, near.session_epoch, near.rack_id) == (-1, 0, -1, "")
    proxied.stats.settle(asked(version, ("t", 0, 1)).topics[0].topic, "t")
    assert proxied.stats.record_bytes == {("classic", "fetch", "near", "near", "t"): 300}
    assert proxied.stats.near_read_bytes == {("near", "near"): 300}
    assert not leader_reads(proxied)
    assert not proxied.memory.used_bytes


@pytest.mark.parametrize("version", [4, 12, 16])
async def test_out_of_range_is_the_leaders_word(version: int) -> None:
    proxied, leader, follower = one_partition()
    del follower.batches[1:]
    follower.high_watermark = 3
    found = only_partition(await proxied.fetch(asked(version, ("t", 0, 6))))
    assert (found.error_code, b"".join(found.records)) == (0, batches(100, 200, 300)[2][2])
    found = only_partition(await proxied.fetch(asked(version, ("t", 0, 10))))
    assert found.error_code == OFFSET_OUT_OF_RANGE
    assert leader_reads(proxied) == {LeaderReason.OUT_OF_RANGE: 2}
    assert proxied.stats.leader_read_bytes[LeaderReason.OUT_OF_RANGE] == 300
    assert not proxied.replicas.stale_topics
    assert not proxied.memory.used_bytes
    assert leader.high_watermark == 9


@pytest.mark.parametrize("is_heard_of", [True, False])
async def test_a_topic_made_again_under_its_name_has_high_watermarks_of_its_own(is_heard_of: bool) -> None:
    proxied, leader, follower = one_partition()
    assert only_partition(await proxied.fetch(asked(11, ("t", 0, 0)))).high_watermark == 9
    for log in (leader, follower):
        del log.batches[1:]
        log.high_watermark = 3
    if is_heard_of:
        proxied.known["t"] = proxied.known["t"]._replace(topic_id=bytes(15) + b"2")
    else:
        assert only_partition(await proxied.fetch(asked(11, ("t", 0, 9)))).error_code == OFFSET_OUT_OF_RANGE
    found = only_partition(await proxied.fetch(asked(11, ("t", 0, 0))))
    assert (found.records_length, found.high_watermark) == (100, 3)


@pytest.mark.parametrize("version", [4, 11, 12, 13])
async def test_a_replica_that_still_has_the_old_topic_of_that_name_is_not_read(version: int) -> None:
    proxied, leader, follower = one_partition()
    del follower.batches[1:], proxied.brokers[NEAR].logs[b"t".ljust(16, b"\0"), 0]
    proxied.brokers[NEAR].logs[b"old t".ljust(16, b"\0"), 0] = follower
    found = only_partition(await proxied.fetch(asked(version, ("t", 0, 0))))
    assert (found.error_code, found.records_length, found.high_watermark) == (0, 600, leader.high_watermark)
    assert leader_reads(proxied) == {LeaderReason.REPLICA_ERROR: 1}
    assert len(proxied.replicas.stale_topics) == 1


@pytest.mark.parametrize("version", [11, 13])
async def test_an_answer_for_a_topic_that_was_not_asked_for_is_not_believed(version: int) -> None:
    proxied, _, _ = one_partition()
    stranger = TopicFetched(b"u".ljust(16, b"\0"), [PartitionFetched(0, 0, 9, 9, 0, [b"x" * 50], 50)])
    proxied.brokers[NEAR].garbage = b"".join(build_fetch_response(13, 0, [stranger]))
    found = only_partition(await proxied.fetch(asked(version, ("t", 0, 0))))
    assert (found.error_code, found.records_length) == (0, 600)
    assert leader_reads(proxied) == {LeaderReason.REPLICA_ERROR: 1}


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"reason": LeaderReason.UNREACHABLE}, LeaderReason.UNREACHABLE),
        ({"reason": LeaderReason.NO_CONNECTION}, LeaderReason.NO_CONNECTION),
        ({"garbage": b"\0\0"}, LeaderReason.REPLICA_ERROR),
        ({"garbage": bytes(4) + b"\xff" * 40}, LeaderReason.REPLICA_ERROR),
        ({"error_code": 35}, LeaderReason.REPLICA_ERROR),
    ],
)
async def test_a_replica_that_gives_no_answer_costs_a_look_at_the_leader(what: dict[str, Any], reason: str) -> None:
    proxied, _, _ = one_partition()
    vars(proxied.brokers[NEAR]).update(what)
    found = only_partition(await proxied.fetch(asked(12, ("t", 0, 0), max_wait_ms=50)))
    assert (found.error_code, found.records_length) == (0, 600)
    assert leader_reads(proxied) == {reason: 1}
    assert [request.topics for request in proxied.brokers[LEADER].asked] == [asked(12, ("t", 0, 0)).topics]
    assert not proxied.memory.used_bytes


@pytest.mark.parametrize("what", [{"error_code": 6}, {"preferred": 3}, {"hidden": True}])
async def test_errors_that_only_a_follower_returns_are_absorbed(what: dict[str, Any]) -> None:
    proxied, _, follower = one_partition()
    vars(follower).update(what)
    found = only_partition(await proxied.fetch(asked(12, ("t", 0, 0))))
    assert (found.error_code, found.records_length, found.preferred_read_replica) == (0, 600, -1)
    assert leader_reads(proxied) == {LeaderReason.REPLICA_ERROR: 1}
    assert proxied.replicas.stale_topics == (["t"] if what == {"error_code": 6} else [])


async def test_errors_that_a_client_causes_shun_no_replica() -> None:
    """Invalid epochs and limits cause such errors; otherwise any reader could send all others to the leader."""
    proxied, leader, follower = one_partition()
    version = proxied.shunned.version
    for error_code in (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_SERVER_ERROR):
        leader.error_code = follower.error_code = error_code
        assert only_partition(await proxied.fetch(asked(12, ("t", 0, 0)))).error_code == error_code
    assert proxied.shunned.version == version
    follower.error_code = NOT_LEADER_OR_FOLLOWER
    await proxied.fetch(asked(12, ("t", 0, 0)))
    assert proxied.shunned.version != version


@pytest.mark.parametrize("version", [9, 12, 16])
async def test_a_fenced_epoch_needs_no_word_of_the_leader(version: int) -> None:
    proxied, leader, follower = one_partition()
    follower.error_code, proxied.frozen = FENCED_LEADER_EPOCH, True
    if version < 13:
        del proxied.cluster.view.brokers[LEADER]  # it hangs
    async with asyncio.timeout(20):
        response = await proxied.fetch(asked(version, ("t", 0, 0), max_wait_ms=60_000))
    found = only_partition(response)
    assert found[1:7] == (FENCED_LEADER_EPOCH, -1, -1, -1, (), 0)
    assert proxied.replicas.stale_topics == [asked(version, ("t", 0, 0)).topics[0].topic]
    assert not leader_reads(proxied)
    assert not proxied.memory.used_bytes
    follower.error_code = 0
    assert only_partition(await proxied.fetch(asked(version, ("t", 0, 0)))).records_length == 600
    assert leader.high_watermark == 9


async def test_a_fenced_epoch_may_be_that_of_another_topic_of_that_name() -> None:
    """The topic was recreated, and neither follower nor proxy knows this yet."""
    proxied, _, follower = one_partition()
    follower.error_code, version = FENCED_LEADER_EPOCH, proxied.shunned.version
    assert only_partition(await proxied.fetch(asked(12, ("t", 0, 0)))).records_length == 600
    assert leader_reads(proxied) == {LeaderReason.REPLICA_ERROR: 1}
    assert proxied.replicas.stale_topics == ["t"]
    assert proxied.shunned.version == version


async def test_a_topic_that_the_proxy_may_not_read_is_left_to_its_leader_for_a_while() -> None:
    proxied, _, follower = one_partition()
    proxied.set("brokers", security_protocol="SASL_PLAINTEXT")
    proxied.allow("t")
    follower.error_code = TOPIC_AUTHORIZATION_FAILED
    with structlog.testing.capture_logs() as logged:
        for number in range(1, 4):
            response = await proxied.fetch(asked(12, ("t", 0, 0)))
            assert response is None or only_partition(response).records_length == 600
            assert leader_reads(proxied) == {LeaderReason.NOT_ALLOWED: number}
        assert len(proxied.brokers[NEAR].asked) == 1
        proxied.shunned._now = lambda: proxied.now() + 5.1
        assert only_partition(await proxied.fetch(asked(12, ("t", 0, 0)))).records_length == 600
        assert len(proxied.brokers[NEAR].asked) == 2
    assert [(line["event"], line["topic"]) for line in logged] == [("replica_read_refused", "t")]
    proxied.shunned._now = lambda: proxied.now() + 20
    follower.error_code = 0
    await proxied.fetch(asked(12, ("t", 0, 0)))
    assert proxied.stats.near_read_bytes[("near", "near")] == 600


async def test_topics_are_read_from_their_leader_by_setting() -> None:
    proxied, _, _ = one_partition()
    proxied.set("fetch", leader_read_topics=("[a-z]",))
    assert await proxied.fetch(asked(12, ("t", 0, 5))) is None
    assert leader_reads(proxied) == {LeaderReason.BY_SETTING: 1}
    assert not proxied.brokers[NEAR].asked
    proxied.set("fetch", leader_read_topics=("[a-s]", "tt"))
    assert only_partition(await proxied.fetch(asked(12, ("t", 0, 5)))).records_length == 500
    assert leader_reads(proxied) == {LeaderReason.BY_SETTING: 1}
    proxied.set("fetch", leader_read_topics=("t",))
    assert await proxied.fetch(asked(12, ("t", 0, 5))) is None
    assert leader_reads(proxied) == {LeaderReason.BY_SETTING: 2}
    assert len(proxied.brokers[NEAR].asked) == 1


async def test_high_watermark_and_last_stable_offset_never_fall_while_the_leader_stays() -> None:
    proxied, leader, follower = one_partition()
    follower.error_code = NOT_LEADER_OR_FOLLOWER
    assert only_partition(await proxied.fetch(asked(12, ("t", 0, 0)))).high_watermark == 9
    follower.error_code = 0
    for high_watermark, expected in ((6, 9), (9, 9), (3, 9), (12, 12), (9, 12)):
        follower.high_watermark = high_watermark
        for version in (4, 10, 11, 12):
            found = only_partition(await proxied.fetch(asked(version, ("t", 0, 0))))
            assert found.high_watermark == found.last_stable_offset == expected
            assert found.records_length == sum((100, 200, 300)[: high_watermark // 3])
    proxied.known["t"] = proxied.known["t"]._replace(partitions={0: _IN_SYNC._replace(leader_epoch=6)})
    follower.high_watermark = 3
    assert only_partition(await proxied.fetch(asked(12, ("t", 0, 0)))).high_watermark == 3
    assert leader.high_watermark == 9


def read_nothing(reads: list[Any]) -> list[Any]:
    assert not reads
    return []


async def test_a_topic_that_may_be_a_placeholder_is_read_from_no_broker() -> None:
    """Its empty log would be OFFSET_OUT_OF_RANGE, and the broker's fetch session would keep it."""
    proxied, _, _ = one_partition()
    proxied.topics.unsure = {"t"}
    proxied.reader = Reader(read_nothing)
    for session_epoch in (-1, 0):
        response = await proxied.fetch(asked(12, ("t", 0, 5), session_epoch=session_epoch, max_wait_ms=1))
        assert response is not None
        assert (response.session_id, response.topics[0].partitions[0].error_code) == (0, KAFKA_STORAGE_ERROR)
    assert proxied.forwarded == []
    assert not proxied.brokers[NEAR].asked
    proxied.topics.unsure = set()
    assert only_partition(await proxied.fetch(asked(12, ("t", 0, 0)))).records_length == 600


async def test_a_session_does_not_begin_with_a_topic_that_may_become_a_placeholder() -> None:
    proxied, _, _ = one_partition()
    proxied.session.node_id = NEAR  # nothing is read from elsewhere
    (topic_id,) = proxied.topics.fresh = {b"t".ljust(16, b"\0")}
    response = await proxied.fetch(asked(13, ("t", 0, 0), session_id=77, session_epoch=1))
    assert response is not None
    assert (response.error_code, response.session_id) == (FETCH_SESSION_ID_NOT_FOUND, 0)
    assert await proxied.fetch(asked(13, ("t", 0, 0), session_epoch=0)) is None
    (forwarded,) = proxied.forwarded
    sent = parse_fetch_request(forwarded.body, 13)
    assert (sent.session_id, sent.session_epoch, [one.topic for one in sent.topics]) == (0, -1, [topic_id])
    proxied.topics.fresh = set()
    assert await proxied.fetch(asked(13, ("t", 0, 0), session_id=77, session_epoch=1)) is None
    assert parse_fetch_request(proxied.forwarded[-1].body, 13).session_id == 77


async def test_sessions_end_on_a_foreign_listener() -> None:
    proxied, _, _ = one_partition()
    response = await proxied.fetch(asked(12, ("t", 0, 0), session_id=77, session_epoch=1))
    assert response is not None
    assert (response.error_code, response.session_id, response.topics) == (FETCH_SESSION_ID_NOT_FOUND, 0, [])
    response = await proxied.fetch(asked(12, ("t", 0, 0), session_id=0, session_epoch=0))
    assert response is not None
    assert (response.error_code, response.session_id, response.topics[0].partitions[0].records_length) == (0, 0, 600)


@pytest.mark.parametrize("version", [4, 6, 7, 12, 14, 15, 18])
async def test_requests_that_only_the_leader_can_answer_go_there_without_their_session(version: int) -> None:
    proxied, _, _ = one_partition()
    topic = "t" if version < 13 else b"t".ljust(16, b"\0")
    for known in ("t", b"t".ljust(16, b"\0")):
        proxied.known[known] = proxied.known[known]._replace(partitions={0: _IN_SYNC._replace(isr=(LEADER,))})
    request = asked(version, ("t", 0, 5), max_wait_ms=70, session_epoch=0)
    assert await proxied.fetch(request) is None
    (forwarded,) = proxied.forwarded
    assert parse_fetch_request(forwarded.body, version) == request._replace(session_epoch=-1)
    assert leader_reads(proxied) == {LeaderReason.NOT_IN_ISR: 1}
    assert proxied.stats.leader_read_bytes == {LeaderReason.NOT_IN_ISR: 500}
    proxied.stats.settle(topic, "t")
    assert proxied.stats.record_bytes == {("classic", "fetch", "near", "far", "t"): 500}
    assert batches(100, 200, 300)[2][2] in proxied.streamed
    assert parse_fetch_request(forwarded.body, version).topics[0].topic == topic


async def test_a_client_that_the_brokers_redirect_is_left_to_them() -> None:
    proxied, _, _ = one_partition()
    request = asked(12, ("t", 0, 5), rack_id="near", session_id=5, session_epoch=3)
    proxied.replica_selector.redirects = True
    assert await proxied.fetch(request) is None
    assert parse_fetch_request(proxied.forwarded[0].body, 12) == request
    proxied.replica_selector.redirects = False
    assert only_partition(await proxied.fetch(request._replace(session_epoch=0))).records_length == 500
    assert proxied.brokers[NEAR].asked[0].rack_id == ""


async def test_a_rack_that_brokers_know_by_another_name_is_not_left_to_them() -> None:
    proxied, _, _ = one_partition()
    proxied.replica_selector.redirects = True
    proxied.racks.aliases.add("zone-1")
    assert only_partition(await proxied.fetch(asked(12, ("t", 0, 5), rack_id="zone-1"))).records_length == 500
    assert proxied.brokers[NEAR].asked[0].rack_id == ""


async def test_near_listeners_and_switched_off_reads_pass_as_they_are() -> None:
    proxied, _, _ = one_partition()
    proxied.session.node_id = NEAR
    assert await proxied.fetch(asked(12, ("t", 0, 5), session_id=5, session_epoch=3)) is None
    proxied.session.node_id = LEADER
    proxied.set("fetch", read_near_replicas=False)
    assert await proxied.fetch(asked(12, ("t", 0, 5), session_id=5, session_epoch=3)) is None
    assert len(proxied.forwarded) == 2
    assert not proxied.brokers[NEAR].asked
    assert proxied.stats.leader_read_bytes == {LeaderReason.SWITCHED_OFF: 500}


async def test_in_a_rack_without_brokers_the_brokers_keep_their_sessions() -> None:
    proxied, _, _ = one_partition()
    proxied.set_near("elsewhere")
    request = asked(12, ("t", 0, 5), session_id=5, session_epoch=3)
    assert await proxied.fetch(request) is None
    assert parse_fetch_request(proxied.forwarded[0].body, 12) == request
    assert proxied.stats.leader_read_bytes == {LeaderReason.NO_NEAR_REPLICA: 500}


@pytest.mark.parametrize("version", [4, 14])
async def test_requests_of_replicas_are_left_to_the_brokers(version: int) -> None:
    proxied, _, _ = one_partition()
    assert await proxied.fetch(asked(version, ("t", 0, 5), replica_id=2)) is None
    assert not proxied.brokers[NEAR].asked


async def test_a_clients_tagged_fields_are_not_sent_to_replicas() -> None:
    """A broker closes the connection over tags that it cannot read."""
    proxied, _, _ = one_partition()
    request = asked(17, ("t", 0, 0))
    unreadable = b"\x01\x00\x01\xff"  # tag 0, which is a UUID, of one byte
    (topic,) = request.topics
    partition = topic.partitions[0]._replace(tagged=unreadable)
    topics = [topic._replace(partitions=[partition], tagged=unreadable)]
    await proxied.fetch(request._replace(topics=topics, tagged=b"\x01\x09\x01\xff"))
    assert [one.topics for one in proxied.brokers[NEAR].asked] == [request.topics]
    assert bytes(proxied.brokers[NEAR].asked[0].tagged) == b"\0"


async def test_a_throttled_replica_throttles_the_client() -> None:
    proxied, _, _ = one_partition()
    proxied.quotas.fetch.available_bytes = lambda *_: 1e9
    proxied.brokers[NEAR].throttle_ms = 300
    response = await proxied.fetch(asked(12, ("t", 0, 5)))
    assert response is not None
    assert (response.throttle_ms, response.topics, proxied.muted_s) == (300, [], 0.3)
    assert not proxied.brokers[LEADER].asked


async def test_a_quota_that_is_not_the_clients_own_does_not_throttle_it() -> None:
    """With SASL, all near reads run under the proxy's principal and share its quotas."""
    proxied, _, _ = one_partition()
    proxied.brokers[NEAR].throttle_ms = 300
    found = only_partition(await proxied.fetch(asked(12, ("t", 0, 0))))
    assert (found.records_length, proxied.muted_s) == (600, 0.0)
    assert leader_reads(proxied) == {LeaderReason.THROTTLED: 1}


async def test_over_its_quota_nothing_is_read_for_a_client() -> None:
    proxied, _, _ = one_partition()
    proxied.quotas.fetch.available_bytes = lambda *_: 0.0
    proxied.quotas.throttle_fetch = lambda connection, client_id, size: 200
    response = await proxied.fetch(asked(12, ("t", 0, 5)))
    assert response is not None
    assert (response.throttle_ms, response.topics, proxied.muted_s) == (200, [], 0.2)
    assert not proxied.brokers[NEAR].asked


async def test_a_client_that_leaves_gives_everything_back() -> None:
    proxied, _, _ = one_partition()
    proxied.known["t"].partitions[1] = PartitionState(LEADER, 5, (LEADER, ALSO_NEAR), (LEADER, ALSO_NEAR))
    never, held = asyncio.Event(), asyncio.Event()
    reading = proxied.replica_connections.fetch

    async def fetch(node: int, *rest: Any) -> Any:
        if node == ALSO_NEAR:
            await never.wait()
        answer = await reading(node, *rest)
        held.set()
        return answer

    proxied.replica_connections.fetch = fetch
    task = asyncio.create_task(proxied.fetch(asked(12, ("t", 0, 0), ("t", 1, 0))))
    await held.wait()
    assert proxied.memory.used_bytes
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not proxied.memory.used_bytes
