"""Planted bugs: `python -m tests.planted` breaks the product in one place at a time and names the tests that notice."""
