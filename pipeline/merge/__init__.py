"""Merge: small segments of many partitions become large objects of one partition each (decision 0037)."""
