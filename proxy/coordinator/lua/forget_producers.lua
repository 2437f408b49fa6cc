-- Drop the state of expired producers, and of their transactions. A call looks at a bounded number.
--
-- A producer with an open transaction does not expire. One whose last batch has expired is kept until its last transaction has, too.
--
-- ARGV[2]  requests: topic ID and partition (20 bytes), u64 producer ID to begin with
-- ARGV[3]  u32: most producers to look at, in all logs together; u64: expiry of producers in ms
-- Answers, per request: u8 1 if there is more to look at, u64 producer ID to continue with, u32 number of dropped producers.

local REQUEST, REQUEST_BYTES = '>c20c8', 28
local LAST_APPEND_AT, ID_AT = 3, PARTITION_BYTES + 1 -- in a PRODUCER; in a field of the producers' hash
local CHANGED_AT = 31 -- in a TXN

local request = ARGV[2]
local budget, expires_after = parse('>I4I8', ARGV[3])
local now = clock()
local producers_key, ids_key = prefix .. 'producers', prefix .. 'producer_ids'

-- The next producer ID, as a string: as a number it could not be distinguished from its neighbours.
local function after(id)
  local high, low = parse('>I4I4', id)
  if low < 2 ^ 32 - 1 then
    return pack('>I4I4', high, low + 1)
  end
  return pack('>I4I4', high + 1, 0)
end

local parts, expired = {}, {}
for at = 1, #request, REQUEST_BYTES do
  local partition, id = parse(REQUEST, request, at)
  local dropped, more = 0, true
  if budget > 0 then
    local ids = call('ZRANGEBYLEX', ids_key, '[' .. partition .. id, end_of(partition), 'LIMIT', '0', budget)
    local states = #ids > 0 and call('HMGET', producers_key, unpack(ids)) or {}
    local known = #ids > 0 and call('HMGET', transactions_key, unpack(ids)) or {}
    for index, field in ipairs(ids) do
      local state, transaction = states[index], known[index]
      local lasts = state and now - parse('>i8', state, LAST_APPEND_AT) < expires_after
        or transaction
          and (is_open_transaction(transaction) or now - parse('>i8', transaction, CHANGED_AT) < expires_after)
      if not lasts then
        expired[#expired + 1] = field
        dropped = dropped + 1
      end
    end
    more = #ids == budget
    budget = budget - #ids
    id = more and after(sub(ids[#ids], ID_AT)) or id
  end
  parts[#parts + 1] = pack('>Bc8I4', more and 1 or 0, id, dropped)
end
if #expired > 0 then
  begin_change()
  for at = 1, #expired, 1000 do
    local last = math.min(at + 999, #expired)
    call('HDEL', producers_key, unpack(expired, at, last))
    call('HDEL', transactions_key, unpack(expired, at, last))
    call('ZREM', ids_key, unpack(expired, at, last))
  end
  note_change(0, 0)
end
return reply(parts)
