"""The handlers of all APIs that are rewritten or intercepted, one file per API; `HANDLERS` is keyed by API key.

A handler opens the request's response slot before it returns. What must wait is done in the coroutine that it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from proxy import fetch_router, produce_offload, rewrite_metadata
from proxy.handlers.alter_configs import alter_configs
from proxy.handlers.alter_partition_reassignments import alter_partition_reassignments
from proxy.handlers.api_versions import api_versions
from proxy.handlers.delete_records import delete_records
from proxy.handlers.delete_topics import delete_topics
from proxy.handlers.describe_configs import describe_configs
from proxy.handlers.describe_log_dirs import describe_log_dirs
from proxy.handlers.describe_producers import describe_producers
from proxy.handlers.describe_quorum import describe_quorum
from proxy.handlers.group_heartbeat import group_heartbeat, share_group_heartbeat
from proxy.handlers.in_parts import Spread, in_parts
from proxy.handlers.list_offsets import list_offsets
from proxy.handlers.names_first import Names, names_first
from proxy.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from proxy.handlers.sasl import sasl_authenticate, sasl_handshake
from proxy.handlers.share_fetch import is_not_diskless, share_acknowledge, share_fetch, with_addresses
from proxy.handlers.share_group_offsets import alter_share_group_offsets, describe_share_group_offsets
from proxy.handlers.transactions import add_partitions_to_txn, is_classic, write_txn_markers
from proxy.protocol.apis import API_TABLE, Treatment

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request

Handler = Callable[["Client", "Request"], Coroutine[Any, Any, None] | None]

_DESCRIBED = Spread(("resources",), "results", cuts_elements=False, small_bytes=256, max_elements=16)
"""The answer tells some forty configs of each resource."""

_ALTERED = Spread(("resources",), "responses", cuts_elements=False, once=True)
_SHARED = Names(("topic_id",), is_not_diskless, with_addresses)

HANDLERS: dict[int, Handler] = {
    0: produce_offload.produce,
    1: fetch_router.fetch,
    2: in_parts(list_offsets, Spread(("topics",), "topics")),
    3: rewrite_metadata.metadata,
    10: rewrite_metadata.find_coordinator,
    17: sasl_handshake,
    18: api_versions,
    20: in_parts(delete_topics, Spread(("topics", "topic_names"), "responses", once=True)),
    21: in_parts(delete_records, Spread(("topics",), "topics")),
    23: in_parts(offset_for_leader_epoch, Spread(("topics",), "topics")),
    24: names_first(add_partitions_to_txn, Names(("name",), is_classic)),
    27: write_txn_markers,
    32: in_parts(describe_configs, _DESCRIBED),
    33: in_parts(alter_configs, _ALTERED),
    35: describe_log_dirs,
    36: sasl_authenticate,
    44: in_parts(alter_configs, _ALTERED),
    45: in_parts(alter_partition_reassignments, Spread(("topics",), "responses")),
    55: describe_quorum,
    60: rewrite_metadata.describe_cluster,
    61: in_parts(describe_producers, Spread(("topics",), "topics")),
    68: group_heartbeat,
    75: rewrite_metadata.describe_topic_partitions,
    76: share_group_heartbeat,
    78: names_first(share_fetch, _SHARED),
    79: names_first(share_acknowledge, _SHARED),
    88: group_heartbeat,
    90: describe_share_group_offsets,
    91: in_parts(alter_share_group_offsets, Spread(("topics",), "responses")),
}


def check_handlers(handlers: Mapping[int, Handler]) -> None:
    """Every API that the table rewrites or intercepts has a handler, and no other. Raises AssertionError."""
    wanted = {key for key, api in API_TABLE.items() if api.treatment in (Treatment.REWRITE, Treatment.INTERCEPT)}
    assert wanted == handlers.keys(), f"the API table and the handlers differ: {sorted(wanted ^ handlers.keys())}"
