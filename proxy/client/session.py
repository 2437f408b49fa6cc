"""The facts about one client that outlive a request, and the values that other rooms keep for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from proxy.client.principal import ANONYMOUS

if TYPE_CHECKING:
    from proxy.client.authentication import Authentication
    from proxy.client.express import Express
    from proxy.config import Listeners

T = TypeVar("T")


class SessionKey(Generic[T]):
    """The key of a value of type T that a room keeps in the sessions of clients.

    Keys are compared by identity, so only the room that defines a key reads or writes its value.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        """Make a key; `name` is for people who read a dump."""
        self._name = name

    def __repr__(self) -> str:
        return f"SessionKey({self._name!r})"


class Session:
    """One client as long as its connection lasts.

    `listeners` is the range of ports that the client came in by. `node_id` is the broker that its port stands for; None
    on the bootstrap port, which stands for any live broker.
    """

    __slots__ = (
        "_kept",
        "authentication",
        "client_id",
        "crossed_bytes",
        "express",
        "host",
        "listeners",
        "node_id",
        "software",
        "user",
    )

    def __init__(self, listeners: Listeners, node_id: int | None, authentication: Authentication) -> None:
        self.listeners = listeners
        self.node_id = node_id
        self.authentication = authentication
        self.host = ""
        """The client's IP address; empty before it has connected."""
        self.client_id: str | None = None
        """The client ID of the last request that was held. The first requests of a client are always held."""
        self.software = ""
        """Name and version of the client, as ApiVersions v3 or newer carries them."""
        self.user = ANONYMOUS
        """The user as the brokers' quotas name it: ANONYMOUS before authentication, UNKNOWN_USER if not visible."""
        self.crossed_bytes = 0
        """Record bytes of the client, once for each border between racks that they cross."""
        self.express: dict[int, Express] = {}
        """Recognizes requests that are like the client's last ones, by API key (`client.express`)."""
        self._kept: dict[SessionKey[Any], Any] = {}

    def get(self, key: SessionKey[T]) -> T | None:
        """Return the value of a key, or None."""
        value: T | None = self._kept.get(key)
        return value

    def __getitem__(self, key: SessionKey[T]) -> T:
        """Return the value of a key. Raises KeyError."""
        value: T = self._kept[key]
        return value

    def __setitem__(self, key: SessionKey[T], value: T) -> None:
        self._kept[key] = value

    def __contains__(self, key: SessionKey[T]) -> bool:
        return key in self._kept

    def forget(self, key: SessionKey[T]) -> None:
        """Drop the value of a key, if there is one."""
        self._kept.pop(key, None)
