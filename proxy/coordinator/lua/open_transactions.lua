-- The open transactions of a shard, some per call, ordered by their logs; nothing is written.
--
-- ARGV[2]  u32: number to look at; the rest: nothing first, then the place where the call before stopped
-- Answers u8 length of the place where this call stopped (0 at the end), that place, then per transaction: topic ID and partition
-- (20 bytes), producer ID (8 bytes), i16 epoch, i64 first offset, i64 `from`, i64 time in ms of its beginning, or of the last
-- enlistment after that.

local ID_AT = PARTITION_BYTES + 9 -- in a member

local count, place_at = parse('>I4', ARGV[2])
local place = sub(ARGV[2], place_at)
local members = call('ZRANGEBYLEX', open_key, place == '' and '-' or '(' .. place, '+', 'LIMIT', '0', count)
local stopped = #members == count and members[#members] or ''
local parts = { pack('>B', #stopped) .. stopped }
for _, member in ipairs(members) do
  local partition, id = sub(member, 1, PARTITION_BYTES), sub(member, ID_AT)
  local transaction = call('HGET', transactions_key, partition .. id)
  if transaction then
    local epoch, first, from, _, _, changed = parse(TXN, transaction)
    parts[#parts + 1] = partition .. id .. pack('>i2i8i8i8', epoch, first, from, changed)
  end
end
return reply(parts)
