-- Store the end of the compacted part of logs. It never falls, and is never above the high watermark.
--
-- ARGV[2]  marks: topic ID and partition (20 bytes), i64 offset

local MARK, MARK_BYTES = '>c20i8', 28

local request = ARGV[2]
local raised = {}
for at = 1, #request, MARK_BYTES do
  local partition, offset = parse(MARK, request, at)
  local log = call('HGET', logs_key, partition)
  if log then
    local _, high_watermark = parse(LOG, log)
    local known = call('HGET', prefix .. 'compacted', partition)
    offset = math.min(offset, high_watermark)
    if offset > (known and parse('>i8', known) or 0) then
      raised[#raised + 1], raised[#raised + 2] = partition, pack('>i8', offset)
    end
  end
end
if #raised > 0 then
  note_change(0)
  call('HSET', prefix .. 'compacted', unpack(raised))
end
return reply({})
