"""Transactions of clients, on their way into the coordinator."""
