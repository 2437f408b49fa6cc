"""The treatment of each API of Kafka 4.x: the one table that decides for every key and version.

Names, keys and versions are those of the message schemas of Apache Kafka 4.3.1 (`clients/src/main/resources/common/
message`). APIs that pass begin at version 0, because brokers before KIP-896 may still offer versions that 4.x has
dropped. APIs that the proxy reads itself begin with the first version that it can read, which is Kafka 4's. A test
fails if the protocol libraries know a key or version that is not in this table.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from proxy.protocol.api_keys import API_VERSIONS

NEVER_FLEXIBLE = 0x7FFF
"""`flexible_from` of an API that has no tagged fields in any version."""


class Treatment(Enum):
    """The way in which the proxy treats an API."""

    PASS = "pass"
    """Request and response stream through."""
    REWRITE = "rewrite"
    """The request goes to the broker; the response is held and changed."""
    INTERCEPT = "intercept"
    """A handler decides; it may answer wholly or in part without the broker."""
    HIDE = "hide"
    """An API between brokers and controllers, which is not offered to clients."""


class Api(NamedTuple):
    """One API: versions from `flexible_from` on have tagged fields (KIP-482), in header and body."""

    key: int
    name: str
    flexible_from: int
    lowest_version: int
    highest_version: int
    treatment: Treatment
    reason: str


_CLASSIC = "the brokers' own affair"
_GROUPS = "groups and their offsets live on the brokers, for diskless topics too"
_RACK = "the brokers answer; the member's rack is learnt"
_CONTROLLER = "between brokers and controllers"
_GONE = "between brokers and controllers before KRaft"
_AUTHENTICATES = "the client authenticates to the broker; passes unchanged, and who it is is noted for quotas"
_NOT_SHARED = "addresses; partitions of diskless topics are refused, as their records are not on the brokers"
_ADDED = "the brokers add the partitions; those of diskless topics are enlisted in the coordinator, too"
_MARKED = "the brokers'; a marker for a diskless partition is written at the leader of its placeholder topic"
_SHARE_GROUP = "the member's rack is learnt; a subscription with a diskless topic is rejected"
_SHARE_STATE = "between brokers: the share coordinator's state"
_PASS, _REWRITE, _INTERCEPT, _HIDE = Treatment.PASS, Treatment.REWRITE, Treatment.INTERCEPT, Treatment.HIDE

_ROWS = (
    (0, "Produce", 9, 0, 13, _INTERCEPT, "diskless batches are taken here; v0-2 are passed on for classic topics"),
    (1, "Fetch", 12, 4, 18, _INTERCEPT, "diskless partitions are read here, classic ones where they are near"),
    (2, "ListOffsets", 6, 1, 11, _INTERCEPT, "offsets of diskless partitions"),
    (3, "Metadata", 9, 0, 13, _REWRITE, "addresses, and leaders of diskless partitions"),
    (4, "LeaderAndIsr", 4, 0, 7, _HIDE, _GONE),
    (5, "StopReplica", 2, 0, 4, _HIDE, _GONE),
    (6, "UpdateMetadata", 6, 0, 8, _HIDE, _GONE),
    (7, "ControlledShutdown", 3, 0, 3, _HIDE, _GONE),
    (8, "OffsetCommit", 8, 0, 10, _PASS, _GROUPS),
    (9, "OffsetFetch", 6, 0, 10, _PASS, _GROUPS),
    (10, "FindCoordinator", 3, 0, 6, _REWRITE, "addresses"),
    (11, "JoinGroup", 6, 0, 9, _PASS, _GROUPS),
    (12, "Heartbeat", 4, 0, 4, _PASS, _GROUPS),
    (13, "LeaveGroup", 4, 0, 5, _PASS, _GROUPS),
    (14, "SyncGroup", 4, 0, 5, _PASS, _GROUPS),
    (15, "DescribeGroups", 5, 0, 6, _PASS, _GROUPS),
    (16, "ListGroups", 3, 0, 5, _PASS, _GROUPS),
    (17, "SaslHandshake", NEVER_FLEXIBLE, 0, 1, _REWRITE, _AUTHENTICATES),
    (18, "ApiVersions", 3, 0, 4, _REWRITE, "what broker and proxy both know"),
    (19, "CreateTopics", 5, 2, 7, _INTERCEPT, "diskless topics are reserved before they are created"),
    (20, "DeleteTopics", 4, 1, 6, _INTERCEPT, "logs of diskless topics end too"),
    (21, "DeleteRecords", 2, 0, 2, _INTERCEPT, "log starts of diskless partitions"),
    (22, "InitProducerId", 2, 0, 6, _PASS, "producer IDs are the brokers' for both kinds of topics"),
    (23, "OffsetForLeaderEpoch", 4, 2, 4, _INTERCEPT, "epochs of diskless partitions never diverge"),
    (24, "AddPartitionsToTxn", 3, 0, 5, _INTERCEPT, _ADDED),
    (25, "AddOffsetsToTxn", 3, 0, 4, _PASS, "the brokers' transaction coordinator is the truth"),
    (26, "EndTxn", 3, 0, 5, _PASS, "the brokers' transaction coordinator is the truth"),
    (27, "WriteTxnMarkers", 1, 1, 2, _INTERCEPT, _MARKED),
    (28, "TxnOffsetCommit", 3, 0, 5, _PASS, _GROUPS),
    (29, "DescribeAcls", 2, 0, 3, _PASS, _CLASSIC),
    (30, "CreateAcls", 2, 0, 3, _PASS, _CLASSIC),
    (31, "DeleteAcls", 2, 0, 3, _PASS, _CLASSIC),
    (32, "DescribeConfigs", 4, 1, 4, _INTERCEPT, "configs of diskless topics that govern data"),
    (33, "AlterConfigs", 2, 0, 2, _INTERCEPT, "configs of diskless topics that govern data"),
    (34, "AlterReplicaLogDirs", 2, 0, 2, _PASS, _CLASSIC),
    (
        35,
        "DescribeLogDirs",
        2,
        1,
        5,
        _INTERCEPT,
        "diskless partitions are in the object storage, not where placeholder topics are",
    ),
    (36, "SaslAuthenticate", 2, 0, 2, _REWRITE, _AUTHENTICATES),
    (37, "CreatePartitions", 2, 0, 3, _INTERCEPT, "logs of diskless topics grow with their placeholder topics"),
    (38, "CreateDelegationToken", 2, 0, 3, _PASS, _CLASSIC),
    (39, "RenewDelegationToken", 2, 0, 2, _PASS, _CLASSIC),
    (40, "ExpireDelegationToken", 2, 0, 2, _PASS, _CLASSIC),
    (41, "DescribeDelegationToken", 2, 0, 3, _PASS, _CLASSIC),
    (42, "DeleteGroups", 2, 0, 2, _PASS, _GROUPS),
    (43, "ElectLeaders", 2, 0, 2, _PASS, _CLASSIC),
    (44, "IncrementalAlterConfigs", 1, 0, 1, _INTERCEPT, "configs of diskless topics that govern data"),
    (
        45,
        "AlterPartitionReassignments",
        0,
        0,
        1,
        _INTERCEPT,
        "placeholder topics move, and lose no replica by accident",
    ),
    (46, "ListPartitionReassignments", 0, 0, 0, _PASS, _CLASSIC),
    (47, "OffsetDelete", NEVER_FLEXIBLE, 0, 0, _PASS, _GROUPS),
    (48, "DescribeClientQuotas", 1, 0, 1, _PASS, _CLASSIC),
    (49, "AlterClientQuotas", 1, 0, 1, _PASS, _CLASSIC),
    (50, "DescribeUserScramCredentials", 0, 0, 0, _PASS, _CLASSIC),
    (51, "AlterUserScramCredentials", 0, 0, 0, _PASS, _CLASSIC),
    (52, "Vote", 0, 0, 2, _HIDE, _CONTROLLER),
    (53, "BeginQuorumEpoch", 1, 0, 1, _HIDE, _CONTROLLER),
    (54, "EndQuorumEpoch", 1, 0, 1, _HIDE, _CONTROLLER),
    (55, "DescribeQuorum", 0, 0, 2, _REWRITE, "v2 shows controllers' listeners, which are left out"),
    (56, "AlterPartition", 0, 0, 3, _HIDE, _CONTROLLER),
    (57, "UpdateFeatures", 0, 0, 2, _PASS, _CLASSIC),
    (58, "Envelope", 0, 0, 0, _HIDE, _CONTROLLER),
    (59, "FetchSnapshot", 0, 0, 1, _HIDE, _CONTROLLER),
    (60, "DescribeCluster", 0, 0, 2, _REWRITE, "addresses"),
    (61, "DescribeProducers", 0, 0, 0, _INTERCEPT, "producers of diskless partitions are the coordinator's"),
    (62, "BrokerRegistration", 0, 0, 4, _HIDE, _CONTROLLER),
    (63, "BrokerHeartbeat", 0, 0, 2, _HIDE, _CONTROLLER),
    (64, "UnregisterBroker", 0, 0, 0, _PASS, _CLASSIC),
    (65, "DescribeTransactions", 0, 0, 0, _PASS, "the brokers' transaction coordinator is the truth"),
    (66, "ListTransactions", 0, 0, 2, _PASS, "the brokers' transaction coordinator is the truth"),
    (67, "AllocateProducerIds", 0, 0, 0, _HIDE, _CONTROLLER),
    (68, "ConsumerGroupHeartbeat", 0, 0, 1, _INTERCEPT, _RACK),
    (69, "ConsumerGroupDescribe", 0, 0, 1, _PASS, _GROUPS),
    (70, "ControllerRegistration", 0, 0, 0, _HIDE, _CONTROLLER),
    (71, "GetTelemetrySubscriptions", 0, 0, 0, _PASS, "clients' metrics go to the brokers"),
    (72, "PushTelemetry", 0, 0, 0, _PASS, "clients' metrics go to the brokers"),
    (73, "AssignReplicasToDirs", 0, 0, 0, _HIDE, _CONTROLLER),
    (74, "ListConfigResources", 0, 0, 1, _PASS, _CLASSIC),
    (75, "DescribeTopicPartitions", 0, 0, 0, _REWRITE, "leaders of diskless partitions, as in Metadata"),
    (76, "ShareGroupHeartbeat", 0, 0, 1, _INTERCEPT, _SHARE_GROUP),
    (77, "ShareGroupDescribe", 0, 0, 1, _PASS, _GROUPS),
    (78, "ShareFetch", 0, 1, 2, _INTERCEPT, _NOT_SHARED),
    (79, "ShareAcknowledge", 0, 1, 2, _INTERCEPT, _NOT_SHARED),
    (80, "AddRaftVoter", 0, 0, 1, _PASS, _CLASSIC),
    (81, "RemoveRaftVoter", 0, 0, 0, _PASS, _CLASSIC),
    (82, "UpdateRaftVoter", 0, 0, 0, _HIDE, _CONTROLLER),
    (83, "InitializeShareGroupState", 0, 0, 0, _HIDE, _SHARE_STATE),
    (84, "ReadShareGroupState", 0, 0, 0, _HIDE, _SHARE_STATE),
    (85, "WriteShareGroupState", 0, 0, 1, _HIDE, _SHARE_STATE),
    (86, "DeleteShareGroupState", 0, 0, 0, _HIDE, _SHARE_STATE),
    (87, "ReadShareGroupStateSummary", 0, 0, 1, _HIDE, _SHARE_STATE),
    (88, "StreamsGroupHeartbeat", 0, 0, 0, _INTERCEPT, _RACK),
    (89, "StreamsGroupDescribe", 0, 0, 0, _PASS, _GROUPS),
    (
        90,
        "DescribeShareGroupOffsets",
        0,
        0,
        1,
        _REWRITE,
        "of diskless topics without lag: share groups can't read them",
    ),
    (91, "AlterShareGroupOffsets", 0, 0, 0, _INTERCEPT, "offsets in diskless topics are refused"),
    (92, "DeleteShareGroupOffsets", 0, 0, 0, _PASS, _GROUPS),
)

API_TABLE: dict[int, Api] = {row[0]: Api(*row) for row in _ROWS}
"""All APIs by API key."""

PROPOSED_VERSIONS = {3: 14, 75: 1}
"""Version that KIP-1163 proposes, by API key: one above the highest, offered only with `kip1163_api`."""


def request_is_flexible(api_key: int, api_version: int) -> bool:
    """Return whether a request of this version has tagged fields, in header and body; False if the key is unknown."""
    api = API_TABLE.get(api_key)
    return api is not None and api_version >= api.flexible_from


def response_is_flexible(api_key: int, api_version: int) -> bool:
    """Return whether the *header* of a response of this version has tagged fields; never that of ApiVersions."""
    return api_key != API_VERSIONS and request_is_flexible(api_key, api_version)
