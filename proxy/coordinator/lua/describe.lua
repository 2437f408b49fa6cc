-- Figures of logs.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- Answers, per log: u8 1 if it exists, i64 log start, i64 high watermark, i64 bytes, i64 rows,
-- i64 last stable offset.

local request = ARGV[2]

local parts = {}
for at = 1, #request, 20 do
  local log = call('HGET', logs_key, sub(request, at, at + 19))
  if log then
    local log_start, _, _, _, _, _, stable = parse(LOG, log)
    parts[#parts + 1] = '\1' .. sub(log, 1, 32) .. pack('>i8', math.max(stable, log_start))
  else
    parts[#parts + 1] = string.rep('\0', 41)
  end
end
return reply(parts)
