-- End logs, a bounded number of rows per call. They are dead from the first call on, whatever happens to later ones.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- ARGV[3]  u32: most rows; u8: whether this call goes on with an earlier one (and so leaves alone what lives again)
-- Answers the ones that have rows left; call again with those.

local request = ARGV[2]
local budget, goes_on = parse('>I4B', ARGV[3])

local left, bytes_freed, rows_freed = {}, {}, {}
local removed, changed = 0, false
for at = 1, #request, 20 do
  local partition = sub(request, at, at + 19)
  local index_key = prefix .. 'index:' .. partition
  if goes_on == 0 or call('HEXISTS', prefix .. 'logs', partition) == 0 then
    -- Removals come first: the server allows them when memory is short, and then also the writes after them.
    local ended = call('HDEL', prefix .. 'logs', partition)
    ended = ended + call('UNLINK', prefix .. 'producers:' .. partition)
    local rows = budget > 0 and call('ZRANGE', index_key, 0, budget - 1) or {}
    for _, row in ipairs(rows) do
      local _, _, _, segment, _, length = parse(ROW, row)
      bytes_freed[segment] = (bytes_freed[segment] or 0) + length
      rows_freed[segment] = (rows_freed[segment] or 0) + 1
    end
    if #rows > 0 then
      call('ZREMRANGEBYRANK', index_key, 0, #rows - 1)
    end
    removed, budget = removed + #rows, budget - #rows
    changed = changed or ended > 0 or #rows > 0
    if call('EXISTS', index_key) == 1 then
      left[#left + 1] = partition
    end
  end
end
if changed then
  note_change(-removed)
  note_freed(bytes_freed, rows_freed)
end
return reply(left)
