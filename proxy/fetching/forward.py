"""A Fetch that is all the broker's: its answer streams through, and nothing of it is held."""

from __future__ import annotations

from proxy.accounting.accounting import Accounts
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot, StreamedFetchSlot
from proxy.fetching.asked import Key
from proxy.protocol.api_keys import FETCH
from proxy.replicas.choice import LeaderReason
from proxy.routing.addresses import Addresses
from proxy.telemetry.stats import Stats
from proxy.wire.topic_walk import CountTopic


class Forwarding:
    """Forwards Fetches that are wholly the broker's."""

    def __init__(self, *, accounts: Accounts, addresses: Addresses, stats: Stats) -> None:
        self._accounts = accounts
        self._addresses = addresses
        self._stats = stats

    def forward(
        self,
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
            self._stats.leader_reads[reason] += 1
        version, correlation_id = request.api_version, request.correlation_id
        streamed = self.slot(client, version, correlation_id, request.client_id, reasons, otherwise)
        if slot is None:
            client.forward_slot(request, streamed)
        else:
            client.forward_in_place(request, slot, streamed)

    def slot(
        self,
        client: Client,
        version: int,
        correlation_id: int,
        client_id: str | None,
        reasons: dict[Key, LeaderReason],
        otherwise: LeaderReason | None,
    ) -> StreamedFetchSlot:
        """Return the place of the broker's answer, whose records are counted, for a request that is not sent yet."""
        count = self._accounts.classic(client.session, client_id, "fetch")
        if reasons or otherwise is not None:
            count = self._counting_reasons(count, reasons, otherwise)
        addresses = self._addresses.of(client.session, client_id)
        return StreamedFetchSlot(client.answers, FETCH, version, correlation_id, addresses, count)

    def _counting_reasons(
        self, count: CountTopic, reasons: dict[Key, LeaderReason], otherwise: LeaderReason | None
    ) -> CountTopic:
        """Counts also why; a topic's bytes under the reason of the first of its partitions."""
        of_topic: dict[str | bytes, LeaderReason] = {}
        for (topic, _), reason in reasons.items():
            of_topic.setdefault(topic, reason)

        def counted(topic: str | bytes, size: int) -> None:
            count(topic, size)
            reason = of_topic.get(topic, otherwise)
            if reason is not None:
                self._stats.leader_read_bytes[reason] += size

        return counted
