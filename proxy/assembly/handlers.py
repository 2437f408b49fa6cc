"""The handlers of all APIs that are rewritten or intercepted, each with the parts that it needs."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.assembly.parts import Parts
from proxy.assembly.record_handlers import build_fetch, build_produce
from proxy.client.handler import Handler, Handlers
from proxy.client.rights import ClientRights
from proxy.handlers.add_partitions_to_txn import AddPartitionsToTxn, is_classic
from proxy.handlers.alter_configs import AlterConfigs
from proxy.handlers.alter_partition_reassignments import AlterPartitionReassignments
from proxy.handlers.api_versions import ApiVersions
from proxy.handlers.create_partitions import CreatePartitions
from proxy.handlers.create_topics import CreateTopics
from proxy.handlers.delete_records import DeleteRecords
from proxy.handlers.delete_topics import DeleteTopics
from proxy.handlers.describe_configs import DescribeConfigs
from proxy.handlers.describe_log_dirs import DescribeLogDirs
from proxy.handlers.describe_producers import DescribeProducers
from proxy.handlers.describe_quorum import describe_quorum
from proxy.handlers.group_heartbeat import GroupHeartbeat
from proxy.handlers.halves import Halves
from proxy.handlers.in_parts import InParts, Spread
from proxy.handlers.list_offsets import ListOffsets
from proxy.handlers.names_first import Names, NamesFirst
from proxy.handlers.offset_for_leader_epoch import OffsetForLeaderEpoch
from proxy.handlers.offsets import Offsets
from proxy.handlers.sasl import Sasl
from proxy.handlers.share_fetch import ShareFetch, is_not_diskless
from proxy.handlers.share_group_offsets import ShareGroupOffsets
from proxy.handlers.write_txn_markers import WriteTxnMarkers
from proxy.protocol import api_keys
from proxy.protocol.apis import API_TABLE, Treatment
from proxy.rewrite_metadata import RewriteMetadata

_TOPICS = Spread(("topics",), "topics")
_DESCRIBED = Spread(("resources",), "results", cuts_elements=False, small_bytes=1024, max_elements=64)
"""The answer has some forty configs of each resource."""
_ALTERED = Spread(("resources",), "responses", cuts_elements=False, once=True)
_CREATED = Spread(("topics",), "topics", cuts_elements=False, once=True)
_GROWN = Spread(("topics",), "results", cuts_elements=False, once=True)
_DELETED = Spread(("topics", "topic_names"), "responses", once=True)
_ANSWERED_AS_RESPONSES = Spread(("topics",), "responses")


def build_handlers(parts: Parts) -> Handlers:
    """Build the handlers. Raises AssertionError unless they are those that the table of APIs wants."""
    process = parts.process
    rights = ClientRights(process.settings, process.now)
    sasl = Sasl(process.settings)
    produce = build_produce(parts, rights)
    handle: dict[int, Handler] = {
        api_keys.PRODUCE: produce.produce,
        api_keys.FETCH: build_fetch(parts, rights).fetch,
        api_keys.SASL_HANDSHAKE: sasl.handshake,
        api_keys.SASL_AUTHENTICATE: sasl.authenticate,
        **_of_addresses(parts),
        **_of_offsets(parts, rights),
        **_of_topics(parts),
        **_of_groups(parts, rights),
    }
    check_handlers(handle)
    return Handlers(handle=handle, begin={api_keys.PRODUCE: produce.begin}, token=sasl.pass_token)


def check_handlers(handlers: Mapping[int, Handler]) -> None:
    """Check that the APIs that the table rewrites or intercepts have a handler each. Raises AssertionError."""
    wanted = {key for key, api in API_TABLE.items() if api.treatment in (Treatment.REWRITE, Treatment.INTERCEPT)}
    assert wanted == handlers.keys(), f"the API table and the handlers differ: {sorted(wanted ^ handlers.keys())}"


def _of_addresses(parts: Parts) -> dict[int, Handler]:
    """Build the handlers by which a client finds brokers, leaders and coordinators."""
    settings, routing, cluster = parts.process.settings, parts.routing, parts.brokers.cluster
    in_parts = InParts(settings.limits, parts.process.turns).of
    rewrite_metadata = RewriteMetadata(
        settings.fleet,
        settings.limits,
        addresses=routing.addresses,
        auto_creation=parts.creation.auto_creation,
        cluster=cluster,
        fleet=routing.fleet,
        racks=routing.racks,
        topics=parts.topics.topics,
        turns=parts.process.turns,
    )
    reassignments = AlterPartitionReassignments(
        settings, topics=parts.topics.topics, cluster=cluster, addresses=routing.addresses
    )
    return {
        api_keys.METADATA: rewrite_metadata.metadata,
        api_keys.FIND_COORDINATOR: rewrite_metadata.find_coordinator,
        api_keys.API_VERSIONS: ApiVersions(
            settings,
            near_brokers=parts.replicas.near_brokers,
            client_version=parts.transactions.client_version,
        ).api_versions,
        api_keys.ALTER_PARTITION_REASSIGNMENTS: in_parts(
            reassignments.alter_partition_reassignments, _ANSWERED_AS_RESPONSES
        ),
        api_keys.DESCRIBE_QUORUM: describe_quorum,
        api_keys.DESCRIBE_CLUSTER: rewrite_metadata.describe_cluster,
        api_keys.DESCRIBE_TOPIC_PARTITIONS: rewrite_metadata.describe_topic_partitions,
    }


def _of_offsets(parts: Parts, rights: ClientRights) -> dict[int, Handler]:
    """Build the handlers that look into the log of a partition."""
    process, settings, topics = parts.process, parts.process.settings, parts.topics.topics
    coordinator = parts.stores.coordinator
    in_parts = InParts(settings.limits, process.turns).of
    halves = Halves(topics=topics, rights=rights)
    offsets = Offsets(
        settings.fetch,
        settings.redis,
        time_lookup=parts.diskless.time_lookup,
        coordinates=parts.diskless.reader.coordinates,
        throttled_log=process.throttled_log,
        now=process.now,
    )
    delete_records = DeleteRecords(
        halves,
        coordinator=coordinator,
        coordinates=parts.diskless.reader.coordinates,
        throttled_log=process.throttled_log,
    )
    describe_log_dirs = DescribeLogDirs(
        settings.storage,
        topics=topics,
        addresses=parts.routing.addresses,
        coordinator=coordinator,
        turns=process.turns,
        throttled_log=process.throttled_log,
    )
    describe_producers = DescribeProducers(halves, coordinator=coordinator, throttled_log=process.throttled_log)
    return {
        api_keys.LIST_OFFSETS: in_parts(ListOffsets(halves, offsets).list_offsets, _TOPICS),
        api_keys.DELETE_RECORDS: in_parts(delete_records.delete_records, _TOPICS),
        api_keys.OFFSET_FOR_LEADER_EPOCH: in_parts(
            OffsetForLeaderEpoch(halves, offsets, catch_up=coordinator.catch_up).offset_for_leader_epoch, _TOPICS
        ),
        api_keys.DESCRIBE_LOG_DIRS: describe_log_dirs.describe_log_dirs,
        api_keys.DESCRIBE_PRODUCERS: in_parts(describe_producers.describe_producers, _TOPICS),
    }


def _of_topics(parts: Parts) -> dict[int, Handler]:
    """Build the handlers that create, change, describe and delete topics."""
    process, settings, topics = parts.process, parts.process.settings, parts.topics.topics
    creation, cluster = parts.creation, parts.brokers.cluster
    in_parts = InParts(settings.limits, process.turns).of
    create_topics = CreateTopics(
        settings, topics=topics, under_replicated=creation.under_replicated, creator=creation.topic_creator
    )
    delete_topics = DeleteTopics(
        topics=topics,
        reservations=creation.reservations,
        shadows=parts.housekeeping.housekeeper.shadows,
        cluster=cluster,
        throttled_log=process.throttled_log,
    )
    describe_configs = DescribeConfigs(settings, topics=topics, cluster=cluster, turns=process.turns)
    alter_configs = in_parts(AlterConfigs(settings.redis, topics=topics, now=process.now).alter_configs, _ALTERED)
    create_partitions = CreatePartitions(
        topics=topics, reservations=creation.reservations, growth=creation.partition_growth
    )
    return {
        api_keys.CREATE_TOPICS: in_parts(create_topics.create_topics, _CREATED),
        api_keys.DELETE_TOPICS: in_parts(delete_topics.delete_topics, _DELETED),
        api_keys.DESCRIBE_CONFIGS: in_parts(
            describe_configs.describe_configs, _DESCRIBED._replace(skip=describe_configs.skip_result)
        ),
        api_keys.ALTER_CONFIGS: alter_configs,
        api_keys.CREATE_PARTITIONS: in_parts(create_partitions.create_partitions, _GROWN),
        api_keys.INCREMENTAL_ALTER_CONFIGS: alter_configs,
    }


def _of_groups(parts: Parts, rights: ClientRights) -> dict[int, Handler]:
    """Build the handlers of groups and transactions."""
    process, settings, topics = parts.process, parts.process.settings, parts.topics.topics
    in_parts = InParts(settings.limits, process.turns).of
    names_first = NamesFirst(topics=topics, turns=process.turns).of
    add_partitions, write_markers = _of_transactions(parts, rights)
    heartbeats = GroupHeartbeat(
        settings, racks=parts.routing.racks, topics=topics, rights=rights, throttled_log=process.throttled_log
    )
    share_fetch = ShareFetch(
        topics=topics,
        rights=rights,
        addresses=parts.routing.addresses,
        turns=process.turns,
        throttled_log=process.throttled_log,
        now=process.now,
    )
    share_offsets = ShareGroupOffsets(topics=topics, rights=rights)
    shared = Names(("topic_id",), is_not_diskless, share_fetch.with_addresses)
    return {
        api_keys.ADD_PARTITIONS_TO_TXN: names_first(add_partitions, Names(("name",), is_classic)),
        api_keys.WRITE_TXN_MARKERS: write_markers,
        api_keys.CONSUMER_GROUP_HEARTBEAT: heartbeats.heartbeat,
        api_keys.SHARE_GROUP_HEARTBEAT: heartbeats.share_group_heartbeat,
        api_keys.SHARE_FETCH: names_first(share_fetch.share_fetch, shared),
        api_keys.SHARE_ACKNOWLEDGE: names_first(share_fetch.share_acknowledge, shared),
        api_keys.STREAMS_GROUP_HEARTBEAT: heartbeats.heartbeat,
        api_keys.DESCRIBE_SHARE_GROUP_OFFSETS: share_offsets.describe,
        api_keys.ALTER_SHARE_GROUP_OFFSETS: in_parts(share_offsets.alter, _ANSWERED_AS_RESPONSES),
    }


def _of_transactions(parts: Parts, rights: ClientRights) -> tuple[Handler, Handler]:
    """Build the handlers of AddPartitionsToTxn and WriteTxnMarkers."""
    process, topics, opening = parts.process, parts.topics.topics, parts.transactions
    adding = AddPartitionsToTxn(
        topics=topics, rights=rights, enlistments=opening.enlistments, throttled_log=process.throttled_log
    )
    return adding.add_partitions_to_txn, WriteTxnMarkers(topics=topics, markers=opening.markers).write_txn_markers
