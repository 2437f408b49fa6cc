-- Begin to copy this shard to a snapshot: from now on, changes are noted (copying.lua). A copy that was begun before ends.
--
-- ARGV[2]  token (16 hex digits); u64: longest time of the copy in ms, by the journal's clock

local token, longest_ms = parse('>c16I8', ARGV[2])
local here = server_here()
if is_new or not here then
  return reply({})
end
call('UNLINK', DIRTY_KEY)
call('HSET', meta_key, 'snapshot', 'C' .. token .. here .. string.format('%d', written + longest_ms))
return reply({ '\1' })
