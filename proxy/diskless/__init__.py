"""The diskless log: written through the WAL, read through the rack's cache."""
