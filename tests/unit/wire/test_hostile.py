"""Any bytes make a parser succeed or raise ProtocolError: cut short at every byte, damaged, or made up."""

import random
import tracemalloc
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proxy.wire import endpoints, produce
from proxy.wire.api_versions import clamp_api_versions
from proxy.wire.describe_topic_partitions import rewrite_response as rewrite_topic_partitions
from proxy.wire.described_configs import RecentConfigs, rewrite_described
from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import parse_fetch_request
from proxy.wire.fetch_response import parse_fetch_response
from proxy.wire.fetch_walk import walk_fetch_response
from proxy.wire.group_heartbeat import heartbeat_rack
from proxy.wire.log_dirs import LogDir, rewrite_log_dirs
from proxy.wire.log_dirs import read_partitions as read_log_dir_partitions
from proxy.wire.metadata import (
    metadata_brokers,
    metadata_cluster_id,
    metadata_topics,
    parse_metadata_request,
    rewrite_metadata_response,
    with_topic_errors,
)
from proxy.wire.partition_leaders import HASH_SLOTS, HashedLeaders, ReplicaLeaders, SoleLeader
from proxy.wire.partition_states import read_partitions, split_topics
from proxy.wire.share import add_share_topics, share_error_and_topics
from tests.unit.wire.test_endpoints import fetch_by_walk
from tests.unit.wire.trees import encode, request_type, response_type, trees


def proxy_address(node_id):
    return "proxy", 19092


def _rewrite_metadata(body, version):
    return rewrite_metadata_response(
        body, version, address_of=proxy_address, is_diskless=_all_are, leaders=SoleLeader(1)
    )


def _all_are(*topic):
    return True


def _propose_metadata(body, version):
    replicas = ReplicaLeaders((1, 2), 3)
    return rewrite_metadata_response(body, 14, address_of=proxy_address, is_diskless=_all_are, leaders=replicas)


def _states_of_metadata(body, version):
    return [read_partitions(topic.encoded) for topic in split_topics(body)]


def _describe_configs(body, version):
    return rewrite_described(body, version, RecentConfigs(), lambda one: None)


def _describe_log_dirs(body, version):
    return rewrite_log_dirs(body, version, ("",), LogDir(0, "file:///dir", {"": [(0, 1)]}))


_HASHED = HashedLeaders((1, 2) * (HASH_SLOTS // 2))
_PARSERS = [
    (produce.parse_produce_request, request_type, 0, range(3, 14)),
    (partial(produce.merge_produce_response, topics=[]), response_type, 0, (3, 5, 8, 9, 10, 13)),
    (parse_fetch_request, request_type, 1, range(4, 19)),
    (parse_fetch_response, response_type, 1, (4, 11, 12, 16)),
    (walk_fetch_response, response_type, 1, (4, 11, 12, 16)),
    (parse_metadata_request, request_type, 3, range(14)),
    (_rewrite_metadata, response_type, 3, range(14)),
    (metadata_brokers, response_type, 3, (0, 8, 12)),
    (metadata_topics, response_type, 3, (0, 8, 12)),
    (metadata_cluster_id, response_type, 3, (8, 12)),
    (_states_of_metadata, response_type, 3, (12,)),
    (partial(endpoints.rewrite_find_coordinator, address_of=proxy_address), response_type, 10, range(7)),
    (partial(endpoints.rewrite_describe_cluster, address_of=proxy_address), response_type, 60, range(3)),
    (_propose_metadata, response_type, 3, (13,)),
    (partial(rewrite_topic_partitions, is_diskless=_all_are, leaders=_HASHED), response_type, 75, (0,)),
    (endpoints.hide_controller_listeners, response_type, 55, (0, 2)),
    (_describe_configs, response_type, 32, (1, 3, 4)),
    (_describe_log_dirs, response_type, 35, range(1, 6)),
    (read_log_dir_partitions, request_type, 35, (1, 2, 5)),
    *((lambda body, version, key=key: heartbeat_rack(key, body), request_type, key, (0,)) for key in (68, 88)),
    (lambda body, version: heartbeat_rack(76, body), request_type, 76, (1,)),
    (partial(with_topic_errors, errors={"orders": 29}), response_type, 3, (0, 8, 12)),
    *(
        (lambda body, version, key=key: share_error_and_topics(key, body, version), response_type, key, (1, 2))
        for key in (78, 79)
    ),
    *(
        (lambda body, version, key=key: add_share_topics(key, body, version, [b""]), response_type, key, (2,))
        for key in (78, 79)
    ),
    (clamp_api_versions, response_type, 18, range(5)),
    *(
        (
            lambda body, version, key=key: endpoints.rewrite_node_endpoints(key, body, version, proxy_address),
            response_type,
            key,
            all,
        )
        for key, all in ((0, (10, 13)), (78, (1, 2)), (79, (1, 2)))
    ),
    (partial(fetch_by_walk, address_of=proxy_address), response_type, 1, (16, 18)),
]
# The others leave the end of the message as it came.
_READ_ALL = (produce.parse_produce_request, parse_fetch_request, walk_fetch_response, parse_fetch_response)
_READ_ALL += (parse_metadata_request, _describe_log_dirs, read_log_dir_partitions)
_CASES = [
    pytest.param(parser, kind(key, version), version, id=f"{number}-{kind(key, version).__name__}-{version}")
    for number, (parser, kind, key, versions) in enumerate(_PARSERS)
    for version in versions
]
_FEW = settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_MANY_BYTES = 400


def _succeeds(parser, body, version):
    try:
        parser(body, version)
    except ProtocolError:
        return False
    return True


@pytest.mark.parametrize(("parser", "entity", "version"), _CASES)
@_FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_parse_or_protocol_error(parser, entity, version, data, seed):
    body = encode(entity, data.draw(trees(entity)))
    assert _succeeds(parser, body, version)
    rng = random.Random(seed)
    cuts = range(len(body)) if len(body) < _MANY_BYTES else rng.sample(range(len(body)), _MANY_BYTES)
    for size in cuts:
        parsed = _succeeds(parser, memoryview(body)[:size], version)
        assert not (parsed and parser in _READ_ALL)
    for _ in range(60):
        damaged = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        _succeeds(parser, bytes(damaged), version)
    _succeeds(parser, rng.randbytes(rng.randrange(200)), version)


@pytest.mark.parametrize(("parser", "entity", "version"), _CASES)
def test_huge_claims_take_no_memory(parser, entity, version):
    bodies = [
        fill * 300 for fill in (b"\x7f", b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff", b"\x00\x00\x7f\xff\xff\xff")
    ]
    tracemalloc.start()
    try:
        for body in bodies:
            for start in range(12):
                _succeeds(parser, bytes(start) + body, version)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
