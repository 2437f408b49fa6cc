"""The real stack on this machine, for the demo, the tests and the benchmarks: brokers, Redis, S3 and proxies.

`stack.py` puts it together; every server has a file of its own; `process.py` starts and ends them. Loopback only.
"""
