"""What is seen from outside, over HTTP: health, readiness, metrics."""
