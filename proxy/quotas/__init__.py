"""The brokers' quotas, held for what the proxy serves itself."""
