"""The topics of ShareFetch and ShareAcknowledge responses (API keys 78, 79, KIP-932), v1 and v2: look, and add some.

Version notes: ShareAcknowledge v2 has the acquisition lock timeout that ShareFetch has had from v1 on.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.protocol.api_keys import SHARE_FETCH
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import INT16, Buffer, check_end, parsing, read_count, skip_string, write_count

_ERROR_CODE = 4


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


def _topics_at(api_key: int, data: memoryview, version: int) -> int:
    """Return the position of the array of topics."""
    if version not in (1, 2):
        raise ProtocolError(f"API key {api_key} v{version} is not parsed here")
    at = skip_string(data, _ERROR_CODE + 2, True)
    return at + 4 if api_key == SHARE_FETCH or version >= 2 else at
