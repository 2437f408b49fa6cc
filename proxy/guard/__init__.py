"""Checks that the coordinator's store and object storage belong together, and that the store has lost nothing.

What lives here:

- `identity.py`: the name that store and storage share, so that neither is used with a foreign counterpart;
- `remembered.py`: the known state of the store, kept in object storage for proxies that restart;
- `watch.py`: the task of every proxy that checks the store again and again;
- `verdict.py`, `unfence.py`: what `diskless-proxy coordinator check` reports, and what `unfence` does.

Losses are detected in `coordinator/lua/fence.lua` and `coordinator/fence.py`.
"""
