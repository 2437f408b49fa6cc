"""The topics of ShareFetch and ShareAcknowledge responses (API keys 78, 79, KIP-932), v1 and v2: look, and add some.

Also the lag in DescribeShareGroupOffsets responses (90, KIP-1226), v1.

Version notes: ShareAcknowledge v2 has the acquisition lock timeout that ShareFetch has had from v1 on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.protocol.api_keys import SHARE_FETCH
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import (
    INT16,
    INT64,
    Buffer,
    check_end,
    parsing,
    read_count,
    read_string,
    skip_string,
    skip_tags,
    write_count,
)
from proxy.wire.steps import Pace, Pausing, Steps

_ERROR_CODE = 4
_LAG, _AFTER_LAG = 16, 26
"""Start and end of a partition's lag in DescribeShareGroupOffsets v1: after index, start offset and epoch."""
_NO_LAG = -1


@parsing
def share_error_and_topics(api_key: int, body: Buffer, version: int) -> tuple[int, int]:
    """Return the error of the whole answer, and the number of its topics. Raises ProtocolError."""
    data = memoryview(body)
    count, at = read_count(data, _topics_at(api_key, data, version), True)
    check_end(data, at)
    return INT16.unpack_from(data, _ERROR_CODE)[0], count


@parsing
def add_share_topics(api_key: int, body: Buffer, version: int, added: Sequence[bytes]) -> bytes:
    """Return the body with the encoded topics `added` before its own. Raises ProtocolError."""
    data = memoryview(body)
    start = _topics_at(api_key, data, version)
    count, at = read_count(data, start, True)
    check_end(data, at)
    return b"".join((data[:start], write_count(max(count, 0) + len(added), True), *added, data[at:]))


@Pausing
def without_lag(body: Buffer, is_diskless: Callable[[str], bool]) -> Steps[list[Buffer]]:
    """Return a DescribeShareGroupOffsets v1 body with no lag of diskless topics. Raises ProtocolError."""
    data, out, pace = memoryview(body), bytearray(body), Pace()
    groups, at = read_count(data, 4, True)
    for _ in range(groups):
        topics, at = read_count(data, skip_string(data, at, True), True)
        for _ in range(topics):
            name, at = read_string(data, at, True)
            diskless = is_diskless(name)
            partitions, at = read_count(data, at + 16, True)
            if pace.pauses(1):
                yield
            for _ in range(partitions):
                if diskless:
                    INT64.pack_into(out, at + _LAG, _NO_LAG)
                at = skip_tags(data, skip_string(data, at + _AFTER_LAG, True))
                if pace.pauses(1):
                    yield
            at = skip_tags(data, at)
        at = skip_tags(data, skip_string(data, at + 2, True))
    check_end(data, skip_tags(data, at))
    return [bytes(out)]


def _topics_at(api_key: int, data: memoryview, version: int) -> int:
    """Return the position of the array of topics."""
    if version not in (1, 2):
        raise ProtocolError(f"API key {api_key} v{version} is not parsed here")
    at = skip_string(data, _ERROR_CODE + 2, True)
    return at + 4 if api_key == SHARE_FETCH or version >= 2 else at
