-- Shared by the scripts of the registry of diskless topics; the loader puts it behind marks.lua.
--
-- KEYS[1]      prefix of the registry's keys
-- ARGV[#ARGV]  i64 version and mark (8 bytes) of the newest change that the caller knows, -1 for none; mark (8 bytes) of the change
--              that this call makes; u32: how long to settle, in ms; identity of the store that the caller knows, zeros for any; u8: 1
--              if nothing may be written
-- Errors: FENCED why (changes are lost, until registry_accept.lua); SETTLING ms to wait; FOREIGN: the store of another deployment.
--
-- <prefix>topics   hash: name -> ENTRY, owner, configs as JSON
-- <prefix>changes  pub/sub channel: i64 version and mark as they come
--
-- As in shards (fence.lua), the first change after a start or a promotion of the server waits until every proxy has had the time to
-- report the newest change that it knows (registry_load.lua). If the registry does not have that change, it is fenced.

local ENTRY, ENTRY_BYTES = '>Bc16I4I4', 25 -- state, topic ID, partitions, length of the owner's name
local RESERVED, LIVE, DELETING = 1, 2, 3
local NO_IDENTITY = string.rep('\0', 16)

local prefix = KEYS[1]
local known_version, known_mark, new_mark, settle_ms, known_identity, only_looks = parse('>i8c8c8I4c16B', ARGV[#ARGV])
local mark = registry_meta[5] or NO_MARK

local function is_foreign()
  local identity = known_identity ~= NO_IDENTITY and call('HGET', REGISTRY .. 'store', 'identity')
  return identity and identity ~= string.gsub(known_identity, '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end)
end

-- How many ms to wait before the life of this server may be written down; nil if it is.
local function enter_life()
  local told = redis.pcall('INFO', 'replication')
  local here = type(told) == 'string' and string.match(told, 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x)')
  if not here or here == registry_meta[4] then
    return nil
  end
  if version > 0 and settle_ms > 0 then
    local settling, time = call('HGET', prefix .. 'meta', 'settling'), call('TIME')
    local now, left = time[1] * 1000 + math.floor(time[2] / 1000), settle_ms
    local since = settling and sub(settling, 1, 16) == here and parse('>i8', settling, 17)
    if since and since <= now then -- else the clock was set back, and it begins again
      left = since + settle_ms - now
    else
      call('HDEL', prefix .. 'meta', 'settling') -- a removal comes first: the server allows it when memory is short
      call('HSET', prefix .. 'meta', 'settling', here .. pack('>i8', now))
    end
    if left > 0 then
      return left
    end
  end
  call('HDEL', prefix .. 'meta', 'settling')
  call('HSET', prefix .. 'meta', 'life', here)
  return nil
end

-- Whether the server may refuse it: a change that may make room begins with a removal, which is allowed when memory is short, and then
-- also the writes after it.
local function note_change(may_make_room)
  if may_make_room then
    call('HDEL', prefix .. 'meta', 'settling')
  end
  version, mark = version + 1, new_mark
  call('HSET', prefix .. 'meta', 'version', version, 'mark', mark)
  call('HSET', prefix .. 'marks', version, mark)
  call('HDEL', prefix .. 'marks', version - MOST_MARKS)
end

-- To be called after everything is written: what is not announced is there all the same.
local function announce()
  call('PUBLISH', prefix .. 'changes', pack('>i8', version) .. mark)
  return version
end

local why_fenced = registry_meta[3]
if not has_change(known_version, known_mark) then
  if is_foreign() then
    return redis.error_reply('FOREIGN')
  end
  why_fenced = why_fenced or string.format('a proxy knows its change %d, and it does not have that (restored, emptied, or a failover '
    .. 'that lost it)', known_version)
  if only_looks == 0 then
    redis.pcall('HDEL', prefix .. 'meta', 'settling') -- a removal comes first: the server allows it when memory is short
    redis.pcall('HSETNX', prefix .. 'meta', 'fenced', why_fenced)
  end
end
if SCRIPT ~= 'registry_load' and SCRIPT ~= 'registry_accept' then
  if why_fenced then
    return redis.error_reply('FENCED ' .. why_fenced)
  end
  local wait_ms = enter_life()
  if wait_ms then
    return redis.error_reply(string.format('SETTLING %d', wait_ms))
  end
end
