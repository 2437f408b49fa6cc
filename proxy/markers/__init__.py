"""The markers of transactions: read from placeholder topics at their leaders, and applied in the coordinator."""
