-- Whether the registry still has the changes that it acknowledged; the loader puts it after registry.lua.
--
-- ARGV[#ARGV]  after what registry.lua reads: u32: how long to settle, in ms; identity of the store that the caller knows, zeros for
--              any; u8: 1 if nothing may be written
-- Errors: FENCED why (changes are lost, until registry_accept.lua); SETTLING ms to wait; FOREIGN: the store of another deployment;
-- JOURNALLED: the registry is a view of a journal.
--
-- As in shards (fence.lua), the first change after a start or a promotion of the server waits until every proxy has had the time to
-- report the newest change that it knows (registry_load.lua). If the registry does not have that change, it is fenced.

local NO_IDENTITY = string.rep('\0', 16)
local settle_ms, known_identity, only_looks = parse('>I4c16B', ARGV[#ARGV], 25)

local function is_foreign()
  local identity = known_identity ~= NO_IDENTITY and call('HGET', REGISTRY .. 'store', 'identity')
  return identity and identity ~= string.gsub(known_identity, '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end)
end

-- How many ms to wait before the life of this server may be written down; nil if it is.
local function enter_life()
  local here = server_here()
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

local function finish(answer)
  return answer
end

if call('HEXISTS', prefix .. 'meta', 'journal') == 1 then
  return redis.error_reply('JOURNALLED')
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
