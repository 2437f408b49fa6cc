"""Topics that are made while brokers are missing (KIP-409), and where the replicas go that are made later (KIP-36)."""
