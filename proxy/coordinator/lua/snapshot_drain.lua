-- Copy again some of the things that have changed. If nothing is left after that, the copy is exact, and it ends.
--
-- ARGV[2]  token (16 hex digits); u32: about how many bytes
-- Answers u8 0 if this copy does not count any more, 1 if more is left, 2 at the end; u32 length of the state and STATE (empty
-- before the end); then ENTRY by ENTRY. The state's sequence is the position of the next record to apply.

local MEMBERS = 50
local token, most_bytes = parse('>c16I4', ARGV[2])
if not is_copied_as(token) or is_new then
  return reply({ pack('>BI4', 0, 0) })
end
local parts, bytes, is_end = { '' }, 0, false
repeat
  local page = call('ZRANGEBYLEX', DIRTY_KEY, '-', '+', 'LIMIT', '0', MEMBERS)
  for _, name in ipairs(page) do
    local kind, rest = sub(name, 1, 1), sub(name, 2)
    local one = entry(kind, rest, value_of(kind, rest))
    parts[#parts + 1], bytes = one, bytes + #one
  end
  if #page > 0 then
    call('ZREM', DIRTY_KEY, unpack(page))
  end
  is_end = #page < MEMBERS
until is_end or bytes >= most_bytes
if is_end then
  call('HDEL', meta_key, 'snapshot')
end
local packed = is_end and packed_state() or ''
parts[1] = pack('>BI4', is_end and 2 or 1, #packed) .. packed
return reply(parts)
