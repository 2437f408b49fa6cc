"""The diskless coordinator: orders batches, finds them, and keeps the registry of diskless topics and the fleet.

What lives here:

- `interface.py`: what the coordinator, the topic registry and the fleet store promise, whatever store is behind them;
  `interface_rewriting.py`: the part that only jobs over object storage ask for;
- `redis.py`, `registry.py`, `fleet_store.py`: the three on a Redis-compatible store, over the client of `connect.py`;
- `layout.py`: which layout the store's data have, and the refusal of one that is not known;
- `lua/`: one script per operation, where every decision is made, with the layout of the keys in `shard.lua`;
- `scripts.py` (run them), `packing.py` (their bytes), `shards.py` (which shard, which keys), `fence.py` (a store that
  lost commits), `subscription.py` (pub/sub that lasts).

What does not: anything that knows of Kafka's wire format, of clients, or of object storage.
"""
