"""One WAL and one cache for all workers of a proxy: both are in the storage process."""
