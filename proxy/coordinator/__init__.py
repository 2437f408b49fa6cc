"""The diskless coordinator: orders batches, finds them, and keeps the registry of diskless topics and the fleet.

What lives here:

- `interface.py`, `interface_registry.py`, `interface_fleet.py`: the interfaces of the coordinator of logs, of the topic
  registry and of the fleet store, whatever store they are on; `interface_rewriting.py`: the part for jobs over object
  storage. The methods are documented there;
- `redis.py` with `rewriting.py`, `registry.py`, `fleet_store.py`: these on a Redis-compatible store, over the client of
  `connect.py`; `shard_states.py`: the part for the guard;
- `layout.py`: which layout the store's data have, and the refusal of one that is not known;
- `lua/`: one script per operation, where every decision is made, with the layout of the keys in `shard.lua`;
- `scripts.py` (run them), `packing.py`, `packing_state.py`, `packing_rewriting.py` (their bytes), `shards.py` (which
  shard, which keys), `fence.py` (a store that lost commits), `subscription.py` (pub/sub that lasts).

What does not: anything that knows of Kafka's wire format, of clients, or of object storage.
"""
