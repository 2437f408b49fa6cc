"""One client: its requests, its answers in order, its identity and rights."""
