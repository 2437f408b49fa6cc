"""A Fetch that is all the broker's: its answer streams through, and nothing of it is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.accounting.accounting import count_classic
from proxy.client.slots import Slot, StreamedFetchSlot
from proxy.fetching.asked import Key
from proxy.replicas.choice import LeaderReason
from proxy.rewrite_metadata import address_of

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request
    from proxy.wire.topic_walk import CountTopic


def forward(
    client: Client,
    request: Request,
    reasons: dict[Key, LeaderReason],
    otherwise: LeaderReason | None = None,
    slot: Slot | None = None,
) -> None:
    """Forward a Fetch that is wholly the broker's; `reasons` say why no near replica is read (`otherwise` for the
    rest).

    `slot` is the answer's place if one was opened already.
    """
    for reason in reasons.values():
        client.context.stats.leader_reads[reason] += 1
    key, version, correlation_id = request.api_key, request.api_version, request.correlation_id
    count = count_classic(client, request.client_id, "fetch")
    if reasons or otherwise is not None:
        count = _counting_reasons(client, count, reasons, otherwise)
    addresses = address_of(client, request.client_id)
    streamed = StreamedFetchSlot(client.answers, key, version, correlation_id, addresses, count)
    if slot is None:
        client.forward_slot(request, streamed)
    else:
        client.forward_in_place(request, slot, streamed)


def _counting_reasons(
    client: Client, count: CountTopic, reasons: dict[Key, LeaderReason], otherwise: LeaderReason | None
) -> CountTopic:
    """Counts also why; a topic's bytes under the reason of the first of its partitions."""
    of_topic: dict[str | bytes, LeaderReason] = {}
    for (topic, _), reason in reasons.items():
        of_topic.setdefault(topic, reason)

    def counted(topic: str | bytes, size: int) -> None:
        count(topic, size)
        reason = of_topic.get(topic, otherwise)
        if reason is not None:
            client.context.stats.leader_read_bytes[reason] += size

    return counted
