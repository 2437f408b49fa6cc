-- What this shard says of itself, fenced or not. Answers i64 time in ms, i64 logs, u64 writes and u64 offsets that are known to
-- be lost, then why it is fenced, or would be by what the caller knows; empty if it is not.

local logs = call('HLEN', logs_key)
local writes_lost, offsets_lost = sum_lost(all_lost)
return reply({ pack('>i8i8I8I8', clock(), logs, writes_lost, offsets_lost), why_fenced or '' })
