-- Part of a shard that is copied to a snapshot; nothing is written.
--
-- ARGV[2]  token (16 hex digits); kind (1 byte, copying.lua); u32: about how many bytes; the rest: the place where the call before
--          stopped, '0' at first
-- Answers u32 length, the place where this call stopped ('0': at the end), then ENTRY by ENTRY. The place is empty if this copy does not
-- count any more, or was begun on another server: of two primaries each has records that the other one has not applied yet.

local MEMBERS, COUNT = 50, '200'
local token, kind, most_bytes, from = parse('>c16c1I4', ARGV[2])
if not is_copied_as(token) then
  return reply({ pack('>I4', 0) })
end
local place = sub(ARGV[2], from)
local parts, bytes = { '' }, 0

local function add(name, value)
  local one = entry(kind, name, value)
  parts[#parts + 1], bytes = one, bytes + #one
end

if kind == ANSWERS_KIND then
  repeat
    local found = call('ZSCAN', prefix .. 'answered', place, 'COUNT', COUNT)
    place = found[1]
    for index = 1, #found[2], 2 do
      local answers = value_of(kind, found[2][index])
      if answers then
        add(found[2][index], answers)
      end
    end
  until place == '0' or bytes >= most_bytes
elseif NO_SCORES[kind] then
  repeat
    local page = call('ZRANGEBYLEX', KEYS_BY_KIND[kind], place == '0' and '-' or '(' .. place, '+', 'LIMIT', '0', MEMBERS)
    for _, member in ipairs(page) do
      add(member, '')
    end
    place = #page == MEMBERS and page[MEMBERS] or '0'
  until place == '0' or bytes >= most_bytes
else
  repeat
    local key, found = KEYS_BY_KIND[kind], nil
    if SORTED[kind] then
      found = call('ZSCAN', key, place, 'COUNT', COUNT)
    else
      found = call('HSCAN', key, place, 'COUNT', COUNT)
    end
    place = found[1]
    for index = 1, #found[2], 2 do
      add(found[2][index], found[2][index + 1])
    end
  until place == '0' or bytes >= most_bytes
end
parts[1] = pack('>I4', #place) .. place
return reply(parts)
