"""Run merge, compaction and audit under load, while they are killed again and again.

`python -m tests.pipeline_under_load --minutes 10 --seed 7` starts its own stack; `run.pipeline_under_load` takes an
existing one. Producers of all kinds write to topics that keep everything, expire records, or are compacted, while the
jobs run and are killed at random. At the end, a Kafka consumer, `format("diskless")` and Spark's Kafka source must read
the same records.
"""
