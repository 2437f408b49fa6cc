"""The long run: a whole stack, every kind of client and job, restarts and small faults, and nothing that grows.

`python -m tests.soak --minutes 60 --seed 7 --report docs/soak.md` starts a stack of its own; `run.soak` takes one that
is there. What each part does:

- `network.py`: links of every proxy to Redis and object storage that can be made slow and broken;
- `shifts.py`: applications and the jobs of the pipeline, in shifts that begin with new topics and end with a reckoning;
- `errands.py`: short visits of all client libraries: make a topic, write, read, ask, delete it;
- `group.py`: groups whose members come and go;
- `faults.py`: what happens to the stack meanwhile;
- `samples.py`, `flatness.py`: figures of every process, and whether they grow;
- `report.py`, `plot.py`: what is told of it all.

The load that runs from beginning to end, and its ledger, are the demo's (`proxy.demo.load`).
"""
