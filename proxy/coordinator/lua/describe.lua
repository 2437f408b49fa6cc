-- Figures of logs.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- Answers, per log: u8 1 if it exists, i64 log start, i64 high watermark, i64 log end, i64 bytes, i64 rows.

local request = ARGV[2]

local parts = {}
for at = 1, #request, 20 do
  local log = call('HGET', logs_key, sub(request, at, at + 19))
  if log then
    parts[#parts + 1] = '\1' .. sub(log, 1, 40)
  else
    parts[#parts + 1] = string.rep('\0', 41)
  end
end
return reply(parts)
