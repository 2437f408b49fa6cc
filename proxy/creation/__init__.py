"""Topic creation: reserved names, topics on demand, and topics created while brokers are missing (KIP-409)."""
