"""A Kafka-compatible proxy that gives unmodified Apache Kafka brokers diskless topics (KIP-1150, 1163, 1164)."""

__version__ = "0.1.0"
