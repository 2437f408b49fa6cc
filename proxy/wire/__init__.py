"""The Kafka protocol, sans-io: headers, framing, and walkers of the messages that the proxy reads or changes."""
