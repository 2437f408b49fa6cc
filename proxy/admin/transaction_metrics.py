"""Transactions over classic and diskless topics, and the markers that end them, under Prometheus names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from proxy.admin.families import counter, gauge, histogram, labelled_counter

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts


def transaction_metrics(parts: Parts) -> Iterator[Metric]:
    """Yield what this process does for transactions. The proxies of a fleet share the shards: their sum is true."""
    markers = parts.markers
    stats, follower, open_ones = markers.stats, markers.follower, markers.open_transactions
    text = "Open transactions in the logs of the shards that fall to this proxy; one for each partition."
    yield gauge("transactions_open", text, open_ones.count)
    text = "Age of the oldest of these transactions in seconds, since its beginning or its last enlistment."
    yield gauge("transaction_oldest_seconds", text, open_ones.oldest_seconds)
    yield labelled_counter(
        "transactions_ended",
        "Transactions that this proxy has ended by a marker; one for each partition.",
        ["result"],
        [(("committed",), stats.committed), (("aborted",), stats.aborted)],
    )
    text = "Time from a marker's append to a placeholder topic until it was applied."
    yield histogram("marker_lag_seconds", text, stats.lag_seconds)
    yield gauge("markers_followed", "Partitions of placeholder topics that this proxy follows.", len(follower))
    text = "Seconds for which this proxy could not read a placeholder topic that it follows; the longest of them."
    yield gauge("markers_unread_seconds", text, follower.stalled_seconds())
    yield counter("markers_lost", "Offsets of placeholder topics that were deleted before they were read.", stats.lost)
    yield counter(
        "transactions_reconciled",
        "Transactions whose markers are lost, and that were ended as the brokers report.",
        stats.reconciled,
    )
