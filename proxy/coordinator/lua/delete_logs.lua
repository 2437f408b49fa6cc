-- End logs, a bounded number of rows per call. They are dead from the first call on, whatever happens to later ones.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- ARGV[3]  u32: most rows; u8: whether this call goes on with an earlier one (and so leaves alone what lives again)
-- Answers the ones that have rows left; call again with those.

local PAGE = 16

local request = ARGV[2]
local budget, goes_on = parse('>I4B', ARGV[3])

local left, bytes_freed, rows_freed = {}, {}, {}
local removed, fewer_bytes, changed = 0, 0, false

-- Count what the first members of an index leave free; how many members. The last one may take more than the budget.
local function free_page(index_key)
  local page = call('ZRANGE', index_key, 0, math.min(budget, PAGE) - 1)
  for index, member in ipairs(page) do
    for _, _, _, segment, _, length in each_row(member) do
      bytes_freed[segment] = (bytes_freed[segment] or 0) + length
      rows_freed[segment] = (rows_freed[segment] or 0) + 1
    end
    fewer_bytes = fewer_bytes + member_bytes(member)
    removed, budget = removed + rows_in(member), budget - rows_in(member)
    if budget <= 0 then
      return index
    end
  end
  return #page
end

for at = 1, #request, 20 do
  local partition = sub(request, at, at + 19)
  local index_key = prefix .. 'index:' .. partition
  if goes_on == 0 or call('HEXISTS', prefix .. 'logs', partition) == 0 then
    -- Removals come first: the server allows them when memory is short, and then also the writes after them.
    begin_change()
    local ended = call('HDEL', prefix .. 'logs', partition)
    ended = ended + call('UNLINK', prefix .. 'producers:' .. partition)
    ended = ended + call('HDEL', prefix .. 'packed', partition)
    ended = ended + call('HDEL', prefix .. 'compacted', partition)
    ended = ended + call('HDEL', prefix .. 'raised', partition)
    changed = changed or ended > 0
    while budget > 0 do
      local members = free_page(index_key)
      if members == 0 then
        break
      end
      call('ZREMRANGEBYRANK', index_key, 0, members - 1)
      changed = true
    end
    if call('EXISTS', index_key) == 1 then
      left[#left + 1] = partition
    end
  end
end
if changed then
  note_change(-removed, -fewer_bytes, 0, true)
  note_freed(bytes_freed, rows_freed)
end
return reply(left)
