"""All scenarios; importing this collects them."""

from tests.conformance.scenarios import administration, errors, groups, offsets, records, transactions

__all__ = ["administration", "errors", "groups", "offsets", "records", "transactions"]
