"""Near replicas of classic topics: the cached knowledge of them, the choice, and the connections (KIP-392)."""
