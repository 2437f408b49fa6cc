-- The size of this shard's indexes. Answers u64 rows, u64 bytes.

return reply({ pack('>I8I8', index_rows, index_bytes) })
