"""Security: TLS on both sides, SASL of clients as it passes, the proxy's own login, and the rights of clients."""
