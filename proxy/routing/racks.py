"""The rack of a client: from its own hints, from what is known about it, and from its port (KAFKA-19257, KIP-1163).

The first of these that gives an answer decides: the RackId of the request itself (Metadata v14, DescribeTopicPartitions
v1); a hint in the client ID; a rack that the same connection, or the same client (address and client ID) on another
one, named in a Fetch v11+ or a group heartbeat; the network that the client comes from; the rack of the port that it
came to; the proxy's own.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from proxy.client.session import Session, SessionKey

if TYPE_CHECKING:
    from proxy.brokers.cluster import Cluster
    from proxy.config import Settings
    from proxy.routing.fleet import Fleet

RACK_HINT = re.compile(r"(?:^|[ ,|])diskless_rack_id=([^=,| ]*)")
"""The hint in a client ID, as KIP-1163 has it."""

RackSource = Literal["client ID", "request", "another connection", "network", "listener", "proxy"]
"""Source of a client's rack."""

_LONGEST_CLIENT_ID = 256
"""Longest client ID that is cached apart from its connection: clients must not be able to fill memory."""
_RENEWALS_PER_EXPIRY = 4
_FOUND = SessionKey[tuple[object, "str | None", str]]("rack found")
"""The last answer: the state of `Racks` when it was found, the client ID, and the rack."""
_SAID = SessionKey[tuple[str, "str | None", float]]("rack said")
"""The rack that a request named, with which client ID, and the time until which it is not learnt again."""


def alias_hint(key: str) -> re.Pattern[str]:
    """Return the hint under another system's key. `&` separates too, as AutoMQ writes `automq_az=<rack>&<rest>`."""
    return re.compile(rf"(?:^|[ ,|&]){re.escape(key)}=([^=,| &]*)")


def hinted_rack(
    client_id: str | None, known_racks: Collection[str] = (), hints: Iterable[re.Pattern[str]] = (RACK_HINT,)
) -> str | None:
    """Return the rack that a client ID names by the first of the hints that it has, or None. An empty hint is none.

    Connect and Streams append `-…` to a client ID: a hint that begins with a known rack and a dash means that rack, the
    longest such one. (MirrorMaker 2 appends `|…`, which ends a hint.)
    """
    if not client_id:
        return None
    for hint in hints:
        found = hint.search(client_id)
        if found and (rack := found.group(1)):
            if rack not in known_racks:
                return max((known for known in known_racks if rack.startswith(f"{known}-")), key=len, default=rack)
            return rack
    return None


@lru_cache(maxsize=4096)
def borders(client_rack: str, own_rack: str, serving_rack: str) -> int:
    """Return how often records cross racks between a client and the broker or store that serves it: 0, 1 or 2.

    `own_rack` is the proxy's. An empty rack is unknown, and counts as the rack next to it.
    """
    way = [rack for rack in (client_rack, own_rack, serving_rack) if rack]
    return sum(here != there for here, there in pairwise(way))


class Networks:
    """Racks by the client's address; the longest prefix decides."""

    def __init__(self, racks: dict[str, str]) -> None:
        networks = [(ip_network(network), rack) for network, rack in racks.items()]
        self._racks: list[tuple[IPv4Network | IPv6Network, str]] = sorted(
            networks, key=lambda entry: entry[0].prefixlen, reverse=True
        )

    def rack_of(self, host: str) -> str | None:
        """Return the rack of an address, IPv4 in IPv6 as IPv4; None if no network holds it."""
        if not self._racks:
            return None
        try:
            address = ip_address(host)
        except ValueError:
            return None
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return next((rack for network, rack in self._racks if address in network), None)


class LearnedRacks:
    """Racks that clients have named, by address and client ID; the client that was silent longest is evicted."""

    def __init__(self, max_clients: int, expiry_s: float, now: Callable[[], float]) -> None:
        self._max_clients = max_clients
        self._expiry_s = expiry_s
        self._now = now
        self._racks: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._racks)

    def learn(self, host: str, client_id: str | None, rack: str) -> bool:
        """Cache a rack; return whether it is new. Clients without an ID, or with a very long one, are not cached."""
        if not client_id or len(client_id) > _LONGEST_CLIENT_ID or not self._max_clients:
            return False
        news = self.get(host, client_id) != rack
        self._racks[host, client_id] = rack, self._now() + self._expiry_s
        self._racks.move_to_end((host, client_id))
        if len(self._racks) > self._max_clients:
            self._racks.popitem(last=False)
        return news

    def get(self, host: str, client_id: str | None) -> str | None:
        """Return the rack that the client said, unless that was too long ago."""
        rack, until_s = self._racks.get((host, client_id or ""), ("", 0.0))
        return rack if rack and self._now() < until_s else None


class Racks:
    """The racks of all clients of one proxy."""

    def __init__(
        self,
        settings: Settings,
        *,
        fleet: Fleet,
        cluster: Cluster,
        now: Callable[[], float],
    ) -> None:
        """Follow the racks of the live proxies and brokers; `now` returns monotonic seconds."""
        self._settings = settings
        self._fleet = fleet
        self._cluster = cluster
        self._now = now
        self._learning = settings.racks.max_learned_clients > 0
        self._renew_after_s = settings.racks.learned_expiry_ms / 1000 / _RENEWALS_PER_EXPIRY
        self.learned = LearnedRacks(
            settings.racks.max_learned_clients, settings.racks.learned_expiry_ms / 1000, self._now
        )
        self._seen_fleet: object = None
        self._seen_brokers: object = None
        self._known: frozenset[str] = frozenset()
        self._names: frozenset[str] = frozenset()
        """Known racks and all aliases, of which hints in client IDs are made."""
        self._state = object()
        """Another one whenever the answer for some client may have changed."""
        self.take_settings()

    def take_settings(self) -> None:
        """Go by the hints and networks that the settings have now."""
        self._hints = (RACK_HINT, *map(alias_hint, self._settings.racks.client_id_keys))
        self._networks = Networks(
            {network: self._own_name(rack) for network, rack in self._settings.racks.by_network.items()}
        )
        self._state = object()

    def named(self, rack: str | None) -> str | None:
        """Return the brokers' name of a rack that a request named, which may be an alias (`racks.aliases`)."""
        return self._own_name(rack) if rack else rack

    def is_alias(self, rack: str) -> bool:
        """Return whether brokers do not know a rack by that name."""
        return rack in self._settings.racks.aliases

    def _own_name(self, rack: str) -> str:
        return self._settings.racks.aliases.get(rack, rack)

    def _hinted(self, client_id: str | None) -> str | None:
        """Return the rack that a client ID names, by the brokers' name."""
        rack = hinted_rack(client_id, self._names, self._hints)
        return None if rack is None else self._own_name(rack)

    def known(self) -> frozenset[str]:
        """Racks that a live proxy serves or a live broker is in."""
        self.state()
        return self._known

    def state(self) -> object:
        """Return an object that is another one whenever the rack of some client, or of a broker, may have changed."""
        # Each heartbeat brings a new tuple, so that answers which connections remember live no longer than that.
        if self._fleet.racks is not self._seen_fleet or self._cluster.view is not self._seen_brokers:
            self._seen_fleet, self._seen_brokers = racks, view = self._fleet.racks, self._cluster.view
            self._known = frozenset(racks) | {broker.rack for broker in view.brokers.values() if broker.rack}
            self._names = self._known | self._settings.racks.aliases.keys()
            self._state = object()
        return self._state

    def of(self, session: Session, client_id: str | None) -> str:
        """Return the rack of the client behind a connection. It is needed with every request, so it is cached there."""
        state = self.state()
        known = session.get(_FOUND)
        if known is not None and known[0] is state and known[1] == client_id:
            return known[2]
        rack = self._find(session, client_id)
        session[_FOUND] = state, client_id, rack
        return rack

    def counted(self, session: Session, client_id: str | None) -> str:
        """Return the rack under which the client's bytes are counted: what clients make up is `unknown`: labels stay
        few."""
        rack = self.of(session, client_id)
        return rack if rack in self._known or rack == self._settings.rack else "unknown"

    def on_any_proxy(self, session: Session, client_id: str | None) -> str | None:
        """Return the client's rack if every proxy would find the same, whatever port the client came to; else None."""
        self.state()
        return self._hinted(client_id) or self._networks.rack_of(session.host)

    def learn(self, session: Session, client_id: str | None, rack: str | None) -> None:
        """Learn the rack that a request named; called with every Fetch. Unknown racks are ignored."""
        if not rack or not self._learning:
            return
        rack = self._own_name(rack)
        said = session.get(_SAID)
        if said is not None and said[0] == rack and said[1] == client_id and self._now() < said[2]:
            return
        if rack not in self.known():
            return
        session[_SAID] = rack, client_id, self._now() + self._renew_after_s
        news = self.learned.learn(session.host, client_id, rack)
        if news or said is None or said[0] != rack:
            self._state = object()

    def source_of(self, session: Session, client_id: str | None) -> RackSource:
        """Return the rule that `of` took the rack from."""
        self.state()
        if self._hinted(client_id) is not None:
            return "client ID"
        if _SAID in session:
            return "request"
        if self.learned.get(session.host, client_id):
            return "another connection"
        if self._networks.rack_of(session.host):
            return "network"
        return "listener" if session.listeners.rack else "proxy"

    def _find(self, session: Session, client_id: str | None) -> str:
        hint = self._hinted(client_id)
        if hint is not None:
            return hint
        said = session.get(_SAID)
        if said is not None:
            return said[0]
        return (
            self.learned.get(session.host, client_id)
            or self._networks.rack_of(session.host)
            or self._settings.rack_of(session.listeners)
        )


def client_key(host: str, client_id: str | None) -> str:
    """Return a key by which `sticky.sticky_order` distinguishes clients: short, however long a client's ID is."""
    if client_id is not None and len(client_id) > _LONGEST_CLIENT_ID:
        client_id = blake2b(client_id.encode(), digest_size=16).hexdigest()
    return f"{host}\0{client_id}"
