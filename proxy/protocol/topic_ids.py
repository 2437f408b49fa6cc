"""Topic IDs (KIP-516) as people read them."""

from __future__ import annotations

import base64


def uuid_text(topic_id: bytes) -> str:
    """Return a topic ID as Kafka's tools write it; empty if there is none yet."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else ""
