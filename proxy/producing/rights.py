"""The rights that one Produce needs: to its topics, and to its transactional ID."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import ClientRights
from proxy.client.transactional_ids import ClientTransactionalIds
from proxy.producing.split import DisklessPart, error_of
from proxy.protocol.errors import TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class ProducerRights:
    """The client's rights, as far as they are known; what is asked for this very request counts as known, however short
    the brokers' answer is cached."""

    __slots__ = ("_asked", "_id_asked", "_ids", "_missing", "_topics", "_transactional_id")

    def __init__(
        self, client: Client, transactional_id: str | None, *, topics: ClientRights, ids: ClientTransactionalIds
    ) -> None:
        self._topics = topics.of(client.session)
        self._ids = None if transactional_id is None else ids.of(client.session)
        self._transactional_id = transactional_id
        self._asked: set[str] = set()
        self._id_asked = self._ids is None
        self._missing: dict[str, bytes] = {}

    def are_known(self, parts: Iterable[DisklessPart]) -> bool:
        """Return whether the rights to these topics are known, and those to the transactional ID; if not, `ask`."""
        entries = {part.entry.name: part.entry.topic_id for part in parts if part.entry is not None}
        unasked = self._topics.unasked(entries)
        self._missing = {} if unasked.keys() <= self._asked else unasked
        if not self._id_asked and entries and self._ids is not None and self._transactional_id is not None:
            self._id_asked = self._ids.is_known(self._transactional_id)
            return self._id_asked and not self._missing
        return not self._missing

    async def ask(self, client: Client, request: Request) -> None:
        """Ask the brokers for what is unknown. Raises BrokerUnreachable and ProtocolError."""
        if self._missing:
            missing, self._missing = self._missing, {}
            await self._topics.ask(client, request, missing)
            self._asked.update(missing)
        if not self._id_asked and self._ids is not None and self._transactional_id is not None:
            await self._ids.ask(client, request, self._transactional_id)
            self._id_asked = True

    def error_of(self, part: DisklessPart) -> int:
        """Return the error of all partitions of a topic; NONE if the client may write to them."""
        return error_of(part, self._topics)

    @property
    def transactional_error(self) -> int:
        """Return the error of transactional batches; NONE if the client may write to the request's transactional
        ID."""
        if self._ids is None or self._transactional_id is None:
            return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return self._ids.error(self._transactional_id)
