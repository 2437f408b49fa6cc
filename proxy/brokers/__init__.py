"""Connections to brokers, the cluster as its brokers describe it, and the brokers' defaults."""
