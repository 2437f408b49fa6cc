"""Watches that the coordinator's store and object storage belong together, and that the store has lost nothing.

What lives here:

- `identity.py`: the name that store and storage have in common, so that neither is used with another one's;
- `remembered.py`: what is known of the store's state, kept in object storage for proxies that start again;
- `watch.py`: the task of every proxy that looks at the store again and again;
- `verdict.py`, `unfence.py`: what `diskless-proxy coordinator check` and `unfence` tell and do.

How a loss is found is in `coordinator/lua/fence.lua` and `coordinator/fence.py`.
"""
