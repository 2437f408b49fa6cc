"""Benchmarks. Compared figures are measured in one run, because machines differ and are noisy."""
