"""Grant and revoke ACLs directly on the brokers, as their administrator."""

from __future__ import annotations

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER


class Acls:
    """Grant and revoke rights; the brokers learn of a change shortly afterwards."""

    def __init__(self, stack: Stack) -> None:
        settings = stack.security.client_settings(ADMIN)
        self._client = AdminClient({"bootstrap.servers": stack.direct_bootstrap, **settings})

    def allow(self, user: str, operation: AclOperation, name: str, kind: ResourceType = TOPIC) -> None:
        """Allow one operation on one named resource."""
        binding = AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )
        self._client.create_acls([binding], request_timeout=30)[binding].result(40)

    def refuse(self, user: str, operation: AclOperation, topic: str) -> None:
        """Deny one operation on one topic, regardless of the user's other rights."""
        binding = AclBinding(
            TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.DENY
        )
        self._client.create_acls([binding], request_timeout=30)[binding].result(40)

    def refuse_no_longer(self, user: str, topic: str) -> None:
        """Remove the denial that `refuse` added for the topic."""
        refused = AclBindingFilter(
            TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.DENY,
        )
        self._client.delete_acls([refused], request_timeout=30)[refused].result(40)

    def revoke(self, user: str) -> None:
        """Remove all rights of the user."""
        every = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]
            ResourcePatternType.ANY,
            f"User:{user}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        self._client.delete_acls([every], request_timeout=30)[every].result(40)
