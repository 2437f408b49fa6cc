-- The registry is a view of the last partition of the journal, as shards are of theirs (journal.lua); the loader puts this file after
-- registry.lua, in place of fence_registry.lua.
--
-- ARGV[#ARGV]  after what registry.lua reads: u8: 0 apply a record, 1 read, 2 look, whatever is wrong; plus 16 if nothing is to be
--              announced; i64 position of the record; for a read, the position up to which the caller knows that records were
--              applied; identity of the journal (16 bytes)
-- Errors: as in journal.lua.
--
-- <prefix>meta    applied: position of the next record; journal: its identity; proved: as in shards
-- <prefix>reply:… string by position: + and the version, or - and the error that a record was answered; expires

local APPLIES, READS, QUIET, REPLIES_KEPT_MS = 0, 1, 16, 60000
local mode, position, identity = parse('>Bi8c16', ARGV[#ARGV], 25)
local is_quiet = mode >= QUIET
mode = mode % QUIET
local view = call('HMGET', prefix .. 'meta', 'applied', 'journal', 'proved')
local applied = tonumber(view[1] or 0)
local why_fenced -- a view is never fenced
if view[2] and view[2] ~= identity then
  return redis.error_reply('FOREIGN')
elseif not view[2] and version > 0 then
  return redis.error_reply('GUARDED')
end

local announce_loudly = announce
function announce()
  return is_quiet and version or announce_loudly()
end

local function finish(answer)
  if mode == APPLIES then
    local kept = type(answer) == 'table' and '-' .. answer.err or '+' .. answer
    call('SET', prefix .. 'reply:' .. position, kept, 'PX', REPLIES_KEPT_MS)
  end
  return answer
end

if mode == APPLIES then
  if position > applied then
    return redis.error_reply(string.format('BEHIND %d', applied))
  elseif position < applied then
    local kept = call('GET', prefix .. 'reply:' .. position)
    if not kept then
      return redis.error_reply('APPLIED')
    elseif sub(kept, 1, 1) == '-' then
      return redis.error_reply(sub(kept, 2))
    end
    return sub(kept, 2)
  end
  call('HSET', prefix .. 'meta', 'applied', position + 1, 'journal', identity)
elseif mode == READS then
  if position > applied then
    return redis.error_reply(string.format('BEHIND %d', applied))
  end
  local here = server_here()
  if not here or view[3] ~= here then
    return redis.error_reply(string.format('UNPROVED %d %s', applied, here or ''))
  end
end
