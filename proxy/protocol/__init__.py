"""Kafka's protocol as a table: API keys and versions, error codes, the forms of IDs and policies."""
