-- The state of this shard, fenced or not. Answers i64 time in ms, i64 logs, u64 lost writes and u64 lost offsets as far as known,
-- then the reason why it is fenced, or why the caller's known state would fence it; empty if it is not fenced.

local logs = call('HLEN', logs_key)
local writes_lost, offsets_lost = sum_lost(all_lost)
return reply({ pack('>i8i8I8I8', clock(), logs, writes_lost, offsets_lost), why_fenced or '' })
