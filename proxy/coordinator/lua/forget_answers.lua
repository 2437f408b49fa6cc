-- Forget answers to commits that nobody needs any more, also when records are applied again: those that count no longer since
-- a while, by the time of the shard's records. Only a view of a journal runs it.
--
-- Answers u8: 1 if there are more; call again then.

local MOST, KEPT_BEYOND_MS = 1000, 600000 -- the latter as in commit.lua
local segments = call('ZRANGEBYSCORE', prefix .. 'answered', '-inf', string.format('(%d', written - KEPT_BEYOND_MS), 'LIMIT', '0', MOST)
if #segments > 0 then
  local keys = {}
  for index, segment in ipairs(segments) do
    keys[index] = ANSWERS_PREFIX .. segment
  end
  call('UNLINK', unpack(keys))
  call('ZREM', prefix .. 'answered', unpack(segments))
end
return reply({ #segments == MOST and '\1' or '\0' })
