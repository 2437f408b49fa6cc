"""Code shared by the tests on real servers."""
