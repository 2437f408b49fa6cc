"""Run a whole stack for a long time with every kind of client and job, restarts and small faults; nothing may grow.

`python -m tests.soak --minutes 60 --seed 7 --report docs/soak.md` starts its own stack; `run.soak` takes an existing
one. The parts:

- `network.py`: links from every proxy to Redis and object storage that can be made slow and broken;
- `shifts.py`: applications and pipeline jobs, in shifts that begin with new topics and end with a check of all records;
- `errands.py`: short visits of all client libraries that create a topic, write, read, query and delete it;
- `group.py`: groups whose members come and go;
- `faults.py`: faults and restarts of the stack meanwhile;
- `samples.py`, `flatness.py`: figures of every process, and whether they grow;
- `report.py`, `plot.py`: the report of the run.

The load that runs from beginning to end, and its ledger, are the demo's (`proxy.demo.load`).
"""
