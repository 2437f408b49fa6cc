"""Counters, log lines, and the latest errors."""
