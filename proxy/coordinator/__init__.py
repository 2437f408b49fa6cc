"""The diskless coordinator: orders batches, finds them, and keeps the registry of diskless topics and the fleet.

What lives here:

- `interface.py`, `interface_registry.py`, `interface_fleet.py`: the interfaces of the coordinator of logs, of the topic
registry and of the fleet store, whatever store they are on; `interface_rewriting.py`: the part for jobs over object
storage. The methods are documented there; - `redis.py` with `rewriting.py`, `registry.py`, `fleet_store.py`: their
implementation on a Redis-compatible store, over the client of `connect.py`; `shard_states.py`: the part for the guard;
- `layout.py`: the layout of the store's data, and the rejection of an unknown layout; - `lua/`: one script per
operation, which makes every decision, with the layout of the keys in `shard.lua`; - `scripts.py` (run the scripts),
`packing.py`, `packing_state.py`, `packing_rewriting.py` (their bytes), `shards.py` (shards and keys), `fence.py` (a
store that lost commits), `subscription.py` (pub/sub that reconnects).

No code here knows Kafka's wire format, clients, or object storage.
"""
