"""A Fetch that is all the broker's: its answer streams through, and nothing of it is held."""

from __future__ import annotations

from typing import NamedTuple

from proxy.accounting.accounting import Accounts
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.session import Session
from proxy.client.slots import Slot, StreamedFetchSlot
from proxy.fetching.asked import Key
from proxy.replicas.choice import LeaderReason
from proxy.routing.addresses import Addresses
from proxy.telemetry.stats import Stats
from proxy.wire.metadata import AddressOf
from proxy.wire.topic_walk import CountTopic


class Passage(NamedTuple):
    """Has what a broker's answer to one client is looked through with."""

    address_of: AddressOf
    count_topic: CountTopic


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
        passage = self.passage(client.session, request.client_id, reasons, otherwise)
        streamed = StreamedFetchSlot(client.answers, request.api_version, request.correlation_id, *passage)
        if slot is None:
            client.forward_slot(request, streamed)
        else:
            client.forward_in_place(request, slot, streamed)

    def passage(
        self,
        session: Session,
        client_id: str | None,
        reasons: dict[Key, LeaderReason],
        otherwise: LeaderReason | None,
    ) -> Passage:
        """Return how answers of the broker's pass to a client; it holds as long as `Racks.state` is the same."""
        count = self._accounts.classic(session, client_id, "fetch")
        if reasons or otherwise is not None:
            count = self._counting_reasons(count, reasons, otherwise)
        return Passage(self._addresses.of(session, client_id), count)

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
