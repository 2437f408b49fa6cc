"""One client's connection, and how many connections are let in."""
