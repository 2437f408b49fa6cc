"""The brokers' produce and consume quotas, applied to diskless traffic in the same way as a broker applies them.

Limits are the brokers' (`producer_byte_rate`, `consumer_byte_rate` by user and client ID; KIP-13, KIP-55, KIP-546).
They are read with DescribeClientQuotas over the service connection while diskless topics exist. Each proxy process
counts as one broker: it applies the quota to what it serves itself. A client over its quota is answered at once, with
the time for which it is throttled, and is not read from for that time (KIP-219). Brokers do the same since 2.0, for
clients of any version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, Final

import structlog

from proxy.brokers.upstream import BrokerUnreachable
from proxy.protocol.api_keys import DESCRIBE_CLIENT_QUOTAS
from proxy.protocol.errors import NONE
from proxy.quotas.token_bucket import TokenBucket
from proxy.wire.cold import read_response
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import Buffer

log = structlog.get_logger()

_VERSION = 0
_ALL_ENTITIES = b"\0\0\0\0\0"
"""DescribeClientQuotas v0: no component to filter by, not strict."""
_MAX_BUCKETS = 100_000
_MS_PER_S = 1000


class QuotasRefused(Exception):
    """The brokers don't return their quotas to the proxy; the text is Kafka's error."""


class Default(Enum):
    """The entity of everybody who has none of its own."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
Entity = tuple[str | Default | None, str | Default | None]
"""User and client ID that a limit is set for; None if it names no user, or no client ID."""
Shares = tuple[str, str]
"""Key of a bucket: a user and client ID, a user with all client IDs (""), or a client ID of all users ("")."""

Ask = Callable[[int, int, "list[Buffer] | bytes"], Awaitable[memoryview]]
"""`ServiceConnection.ask`."""


class ClientQuota:
    """One kind of quota: the limits in bytes per second, and the bytes that each client may still move."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.limits: Mapping[Entity, float] = {}
        """Bytes per second, above 0; they may change at any time."""
        self._now = now
        self._buckets: dict[Shares, tuple[TokenBucket, float]] = {}
        """With the limit that each had when it was last used."""

    def forget_idle(self) -> None:
        """Drop the buckets that are full: new ones are no different."""
        now_s = self._now()
        self._buckets = {shares: used for shares, used in self._buckets.items() if not used[0].is_full(used[1], now_s)}

    def available_bytes(self, user: str, client_id: str | None) -> float:
        """Return how many bytes may be answered now (a first batch may be larger); infinite without a limit."""
        bucket, limit = self._bucket(user, client_id)
        return bucket.available(limit, self._now()) if bucket else float("inf")

    def take(self, user: str, client_id: str | None, size: int) -> float:
        """Count `size` bytes that were moved; for how many seconds the client is to be throttled, most often 0."""
        bucket, limit = self._bucket(user, client_id)
        return bucket.take(size, limit, self._now()) if bucket else 0.0

    def take_if_any(self, user: str, client_id: str | None, size: int) -> float:
        """Do the same as `take`, but if the client has to wait first, count nothing, because the bytes must not be
        moved."""
        bucket, limit = self._bucket(user, client_id)
        return bucket.take_if_any(size, limit, self._now()) if bucket else 0.0

    def _bucket(self, user: str, client_id: str | None) -> tuple[TokenBucket | None, float]:
        found = self._find(user, client_id or "") if self.limits else None
        if found is None:
            return None, 0.0
        shares, limit = found
        bucket = self._buckets[shares][0] if shares in self._buckets else TokenBucket()
        self._buckets[shares] = bucket, limit
        if len(self._buckets) > _MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        return bucket, limit

    def _find(self, user: str, client_id: str) -> tuple[Shares, float] | None:
        """Return the limit of the most specific entity, in Kafka's order (`ClientQuotaManager`), and who shares it."""
        both, of_user, of_client_id = (user, client_id), (user, ""), ("", client_id)
        levels: tuple[tuple[Entity, Shares], ...] = (
            ((user, client_id), both),
            ((user, DEFAULT), both),
            ((user, None), of_user),
            ((DEFAULT, client_id), both),
            ((DEFAULT, DEFAULT), both),
            ((DEFAULT, None), of_user),
            ((None, client_id), of_client_id),
            ((None, DEFAULT), of_client_id),
        )
        for entity, shares in levels:
            limit = self.limits.get(entity)
            # Nobody is limited by a name that he does not have, not even the default one.
            if limit is not None and (user or entity[0] is None) and (client_id or entity[1] is None):
                return shares, limit
        return None


class Quotas:
    """Produce and consume quotas of one proxy."""

    def __init__(self, now: Callable[[], float], throttled_seconds: dict[str, float]) -> None:
        """`throttled_seconds` is counted into, by `produce` and `fetch`."""
        self.produce = ClientQuota(now)
        self.fetch = ClientQuota(now)
        self._throttled_seconds = throttled_seconds
        self._described = b""

    def throttle_produce(self, user: str, client_id: str | None, size: int) -> int:
        """Count a diskless Produce of `size` bytes, and return the throttle time in milliseconds.

        If the time is not 0, the caller mutes the client for it.
        """
        return self._throttle("produce", self.produce.take(user, client_id, size))

    def throttle_fetch(self, user: str, client_id: str | None, size: int) -> int:
        """Do the same before `size` bytes are answered; if the time is not 0, they must not be answered."""
        wait_s = self.fetch.take_if_any(user, client_id, size) if size else 0.0
        return self._throttle("fetch", wait_s)

    def _throttle(self, direction: str, wait_s: float) -> int:
        throttle_ms = min(round(wait_s * _MS_PER_S), 2**31 - 1)
        if throttle_ms:
            self._throttled_seconds[direction] += throttle_ms / _MS_PER_S
        return throttle_ms

    async def keep_fresh(self, ask: Ask, wanted: Callable[[], bool], refresh_s: float) -> None:
        """Read the limits from the brokers while they are `wanted`, forever.

        On failure, keep the last ones and log it once.
        """
        failing = False
        while True:
            if wanted():
                try:
                    self.learn(await ask(DESCRIBE_CLIENT_QUOTAS, _VERSION, _ALL_ENTITIES))
                    if failing:
                        log.info("quotas_readable_again")
                    failing = False
                except (BrokerUnreachable, ProtocolError, QuotasRefused) as error:
                    if not failing:
                        log.warning(
                            "quotas_unreadable",
                            reason=str(error),
                            effect="diskless traffic has the quotas that were read last, or none",
                            remedy="allow the proxy's own principal DescribeConfigs on Cluster"
                            if isinstance(error, QuotasRefused)
                            else "see the brokers' logs",
                        )
                    failing = True
            await asyncio.sleep(refresh_s)

    def learn(self, body: Buffer) -> None:
        """Take over an answer to DescribeClientQuotas v0. Raises QuotasRefused and ProtocolError."""
        described = bytes(body)
        if described != self._described:
            limits = _limits_by_key(described)
            self.produce.limits = limits.get("producer_byte_rate", {})
            self.fetch.limits = limits.get("consumer_byte_rate", {})
            self._described = described
        self.produce.forget_idle()
        self.fetch.forget_idle()


def _limits_by_key(body: bytes) -> dict[str, dict[Entity, float]]:
    response = read_response(DESCRIBE_CLIENT_QUOTAS, _VERSION, body)
    if response.error_code != NONE:
        raise QuotasRefused(f"DescribeClientQuotas: {response.error_code.name.upper()}")
    limits: dict[str, dict[Entity, float]] = {}
    for entry in response.entries or ():
        entity = _entity(entry)
        if entity is not None:
            for value in entry.values:
                if value.value > 0:
                    limits.setdefault(value.key, {})[entity] = value.value
    return limits


def _entity(entry: Any) -> Entity | None:
    """Return None for limits by neither user nor client ID: those are by address, which only the brokers see."""
    names = {one.entity_type: DEFAULT if one.entity_name is None else str(one.entity_name) for one in entry.entity}
    if not names or names.keys() - {"user", "client-id"}:
        return None
    return names.get("user"), names.get("client-id")
