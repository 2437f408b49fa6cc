"""Retention and deletions under load, with the proxy that does them killed again and again.

`python -m tests.retention_under_load --minutes 10 --seed 7` starts a stack of its own; `run.retention_under_load` takes
one that is there. Producers write to diskless topics that forget by time, by size, on request, and by being deleted;
readers in two racks check every record that they get and every one that they do not; and the bytes in the bucket are
held against the bytes that the coordinator's rows still name.
"""
