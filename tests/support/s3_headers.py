"""The headers that every answer of an S3 server has, for the doubles of one."""

from __future__ import annotations

ETAG = '"0"'


def object_headers(data: bytes, wanted: slice | None) -> dict[str, str]:
    """Return the headers of the answer to a GET of an object; `wanted`: its range, None without one."""
    headers = {"ETag": ETAG, "Last-Modified": "Sun, 29 Nov 2026 12:00:00 GMT"}
    if wanted is not None:
        start, stop, _ = wanted.indices(len(data))
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
    return headers
