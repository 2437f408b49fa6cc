"""Run retention and deletions under load, while the proxy that does them is killed again and again.

`python -m tests.retention_under_load --minutes 10 --seed 7` starts its own stack; `run.retention_under_load` takes an
existing one. Producers write to diskless topics whose records expire by time, by size, on request, or with the topic.
Readers in two racks check every record that they get, and every one that they miss. The bytes in the bucket are
compared with the bytes that the coordinator's rows still name.
"""
