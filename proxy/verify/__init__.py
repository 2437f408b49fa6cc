"""`diskless-proxy verify`: clients of any Kafka cluster that write down what they did, for `proxy/judge/`."""
