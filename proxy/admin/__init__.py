"""The proxy's state over HTTP: health, readiness, metrics, and the admin page."""
