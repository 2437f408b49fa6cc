-- What this shard says of itself, fenced or not. Answers i64 time in ms, i64 logs, u32 length, why it is fenced (or would be, by
-- what the caller knows), then KNOWN of those who know more than is here.

local why = meta[8] or loss or half_done or ''
local logs = call('HLEN', prefix .. 'logs')
return reply({ pack('>i8i8I4', clock(), logs, #why), why, call('HGET', meta_key, 'known') or '' })
