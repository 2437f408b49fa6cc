"""Other proxies next to this one, in the same rounds: `python -m benchmarks.peers`."""
