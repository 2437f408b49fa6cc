"""Histories of loads on a Kafka cluster, and the judge that finds anomalies in them. No file here knows a client."""
