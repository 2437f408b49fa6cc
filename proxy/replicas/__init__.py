"""Near replicas of classic topics: what is known of them, which one is read, and the connections for it (KIP-392)."""
