"""The rights of the proxy's own principal to the journal's topic."""

from __future__ import annotations

from collections.abc import Iterable

NEEDED = {"Read": 1 << 3, "Write": 1 << 4, "Delete": 1 << 6, "Describe": 1 << 8, "DescribeConfigs": 1 << 10}
"""Rights to a topic that exists, as `kafka-acls` names them, with the bits of `AclOperation`."""
ALL = ("Create", *NEEDED)
"""The same, and the right to create the topic."""


def grant_command(topic: str, rights: Iterable[str] = ALL, user: str = "") -> str:
    """Return the command that gives a user rights to the topic."""
    operations = " ".join(f"--operation {right}" for right in rights)
    return f"kafka-acls --bootstrap-server … --add --allow-principal User:{user or '…'} {operations} --topic {topic}"
