-- Replace the configs of a topic. ARGV[1] name, ARGV[2] the version that they were read at, ARGV[3] configs as JSON.
-- Answers the version; error CHANGED where the registry has another version by now, MISSING where the topic is not live.

local entry = call('HGET', prefix .. 'topics', ARGV[1])
if not entry or parse(ENTRY, entry) ~= LIVE then
  return redis.error_reply('MISSING')
end
if version ~= tonumber(ARGV[2]) then
  return redis.error_reply('CHANGED')
end
local _, _, _, owner_bytes = parse(ENTRY, entry)
local changed = sub(entry, 1, ENTRY_BYTES + owner_bytes) .. ARGV[3]
if changed ~= entry then
  note_change(true) -- a shorter retention is how an operator makes room
  call('HSET', prefix .. 'topics', ARGV[1], changed)
  return announce()
end
return version
