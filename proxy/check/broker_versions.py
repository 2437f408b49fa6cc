"""A check of the brokers' releases, by the APIs that they offer (docs/compatibility.md)."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.protocol.api_keys import DESCRIBE_QUORUM
from proxy.protocol.apis import API_TABLE, Treatment

NEWER_THAN_TRIED = "they are newer than the brokers that this release was tested with"
_ZOOKEEPER = "they keep their metadata in ZooKeeper, or are older than Kafka 3.3: DescribeQuorum is not offered"
_TOO_OLD = "they are older than Kafka 3.3, the oldest that is supported"


def of_ranges(ranges: Mapping[int, tuple[int, int]]) -> str | None:
    """Return what is wrong with version ranges, None if nothing is.

    `ranges` has lowest and highest version by API key.
    """
    if DESCRIBE_QUORUM not in ranges:  # only KRaft brokers have it; v1 came with Kafka 3.3 (KIP-836)
        return _ZOOKEEPER
    if ranges[DESCRIBE_QUORUM][1] < 1:
        return _TOO_OLD
    for key, (_, highest) in ranges.items():
        api = API_TABLE.get(key)
        if api is None or (api.treatment is not Treatment.HIDE and highest > api.highest_version):
            return NEWER_THAN_TRIED
    return None
