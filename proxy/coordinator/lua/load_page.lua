-- Load a page of a snapshot. The pages come in the order in which they were copied: a page that was loaded before does nothing.
--
-- ARGV[2]  token (16 hex digits); u32: number of the page
-- ARGV[3]  STATE at the end, or empty
-- ARGV[4]  u64: time at the snapshot's position, in ms; then ENTRY by ENTRY
-- Errors: RESTORING token, pages: somebody else loads a snapshot, or the server has lost pages; BEHIND position: nobody loads one

local KEPT_MS = 600000 -- as in commit.lua, beyond the time until which answers count
local LEFT_OVER_MS = '604800000' -- as there
local token, number = parse('>c16I4', ARGV[2])
local loading = meta[6]
if not loading or sub(loading, 1, 1) ~= 'L' then
  return redis.error_reply(string.format('BEHIND %d', sequence))
elseif sub(loading, 2, 17) ~= token then
  return redis.error_reply('RESTORING ' .. sub(loading, 2))
end
local loaded = tonumber(sub(loading, 19))
if number <= loaded then
  return reply({})
elseif number > loaded + 1 then
  return redis.error_reply('RESTORING ' .. sub(loading, 2))
end
local page, time_there = ARGV[4], parse('>I8', ARGV[4])
local removed, added = {}, {} -- by kind
local at = 9

local function flush(kind)
  local key, gone, new = KEYS_BY_KIND[kind], removed[kind], added[kind]
  if gone and SORTED[kind] then
    call('ZREM', key, unpack(gone))
  elseif gone then
    call('HDEL', key, unpack(gone))
  end
  if new and SORTED[kind] then
    call('ZADD', key, unpack(new))
  elseif new then
    call('HSET', key, unpack(new))
  end
  removed[kind], added[kind] = nil, nil
end

local function load_answers(name, value)
  local kept_ms = value and parse('>i8', value) - time_there + KEPT_MS
  if kept_ms and kept_ms > 0 then
    call('SET', ANSWERS_PREFIX .. name, value, 'PX', LEFT_OVER_MS)
    call('ZADD', prefix .. 'answered', string.format('%d', (parse('>i8', value))), name)
  else
    call('UNLINK', ANSWERS_PREFIX .. name)
    call('ZREM', prefix .. 'answered', name)
  end
end

while at <= #page do
  local kind, name_bytes, from = parse('>c1I4', page, at)
  local name = sub(page, from, from + name_bytes - 1)
  local exists, value_bytes, value_at = parse('>BI4', page, from + name_bytes)
  local value = exists == 1 and sub(page, value_at, value_at + value_bytes - 1)
  at = value_at + value_bytes
  if kind == ANSWERS_KIND then
    load_answers(name, value)
  elseif value then
    local list = added[kind] or {}
    added[kind] = list
    if SORTED[kind] then
      list[#list + 1], list[#list + 2] = NO_SCORES[kind] and '0' or value, name
    else
      list[#list + 1], list[#list + 2] = name, value
    end
    if #list >= 1000 then
      flush(kind)
    end
  else
    local list = removed[kind] or {}
    removed[kind] = list
    list[#list + 1] = name
    if #list >= 1000 then
      flush(kind)
    end
  end
end
for _, kind in pairs(KINDS) do
  flush(kind)
end
if ARGV[3] == '' then
  call('HSET', meta_key, 'snapshot', 'L' .. token .. string.format(' %d', number))
else
  call('HSET', meta_key, 'state', ARGV[3])
  call('HDEL', meta_key, 'snapshot')
end
return reply({})
