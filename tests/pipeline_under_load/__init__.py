"""Merge, compaction and audit under load, killed again and again.

`python -m tests.pipeline_under_load --minutes 10 --seed 7` starts a stack of its own; `run.pipeline_under_load` takes
one that is there. Producers of all kinds write to topics that keep all, forget, or are compacted, while the jobs run
and are killed at random; at the end a Kafka consumer, `format("diskless")` and Spark's Kafka source must read the same
records.
"""
