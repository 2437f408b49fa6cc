"""Kafka's API keys that several files use by name. `apis.API_TABLE` has all of them."""

from __future__ import annotations

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_RECORDS = 21
DESCRIBE_CONFIGS = 32
SASL_AUTHENTICATE = 36
SHARE_FETCH = 78
