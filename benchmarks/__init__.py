"""Benchmarks: what is compared is measured in one run, as machines differ and are noisy."""
