"""Compaction of diskless topics: of each key the last record stays, as Kafka's log cleaner leaves them."""
