"""Racks, partition leaders and live proxies."""
