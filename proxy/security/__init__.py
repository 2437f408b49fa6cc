"""Who is who: TLS on both sides, SASL of clients as it passes, the proxy's own login, and what clients may do."""
