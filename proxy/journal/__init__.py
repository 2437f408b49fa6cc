"""The journal on the Kafka brokers: the order of all writes to the coordinator, in a topic."""
