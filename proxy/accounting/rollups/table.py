"""The columns of a rollup, for those who write and those who read it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

FORMAT_KEY = "diskless_proxy.rollup"
"""Key in the metadata of the file that makes a Parquet file a rollup; its value is the version."""
FORMAT = "1"
HOUR_MS = 3_600_000


class Measure(StrEnum):
    """The quantity that a row counts."""

    RECORDS = "records"
    """Bytes of record batches between a client and the rack that served it (decision 0031)."""
    NEAR_READS = "near_reads"
    """The part of the records that was read from a replica in the proxy's rack instead of another rack's broker
    (decision 0034); without topic."""
    PUTS = "puts"
    """Uploads of WAL segments, failed ones too, and the bytes of those that worked."""
    GETS = "gets"
    """Reads of object storage, and what they brought."""
    COORDINATION = "coordination"
    """Payload from and to the coordinator's store."""


class RollupRow(NamedTuple):
    """One row; what does not apply to a measure is empty, or 0."""

    hour_ms: int
    """The hour's beginning, milliseconds since 1970."""
    proxy: str
    """`proxy_id`, the same for all processes and after every start."""
    rack: str
    """The proxy's."""
    measure: str
    kind: str
    """`classic` or `diskless`."""
    direction: str
    """`produce` or `fetch`; of coordination `sent` or `received`."""
    client_rack: str
    serving_rack: str
    topic: str
    bytes: int
    requests: int
    """To object storage."""
