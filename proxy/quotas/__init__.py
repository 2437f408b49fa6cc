"""The brokers' quotas, applied to traffic that the proxy serves itself."""
