"""The rack in group heartbeats: of consumer groups (API key 68, v0 and v1), share groups (76) and streams groups (88).

All begin with group ID, member ID, member epoch; what stands between that and the rack differs.
"""

from __future__ import annotations

from proxy.wire.primitives import Buffer, parsing, read_nullable_string, skip_string

_SHARE_GROUP, _STREAMS_GROUP = 76, 88


@parsing
def heartbeat_rack(api_key: int, body: Buffer) -> str | None:
    """RackId of a request of one of the three; null if it has not changed. Raises ProtocolError."""
    at = skip_string(body, skip_string(body, 0, True), True) + 4
    if api_key == _STREAMS_GROUP:
        at += 4  # the epoch of endpoint information
    if api_key != _SHARE_GROUP:
        at = skip_string(body, at, True)  # the instance ID
    rack, _ = read_nullable_string(body, at, True)
    return rack
