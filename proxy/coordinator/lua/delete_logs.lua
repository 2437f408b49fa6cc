-- Delete logs, a bounded number of rows, producers and transactions per call. From the first call on the logs do not exist, even if later calls
-- fail.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- ARGV[3]  u32: most rows and producers; u8: 1 if this call continues an earlier one (then it skips logs that exist again)
-- Answers the logs that have rows or producers left; call again with those.

local PAGE = 16
local MOST_AT_ONCE = 1000

local request = ARGV[2]
local producers_key, ids_key = prefix .. 'producers', prefix .. 'producer_ids'
local budget, goes_on = parse('>I4B', ARGV[3])

local left, bytes_freed, rows_freed = {}, {}, {}
local removed, fewer_bytes, changed = 0, 0, false

-- Remove the first rows of an index, within the budget, and count what they free; true if there were any.
local function free_page(partition)
  local page, last, split = members_from(partition, 0, nil, math.min(budget, PAGE)), nil, nil
  for _, member in ipairs(page) do
    local freed = 0
    for number, _, _, segment, _, length in each_row(member) do
      if number > budget then
        break
      end
      if length > 0 then -- a marker uses no segment
        bytes_freed[segment] = (bytes_freed[segment] or 0) + length
        rows_freed[segment] = (rows_freed[segment] or 0) + 1
      end
      freed = number
    end
    if freed < rows_in(member) then
      split = without_first(member, freed)
    end
    fewer_bytes = fewer_bytes + member_bytes(member)
    removed, budget, last = removed + freed, budget - freed, parse('>i8', member, LAST_AT)
    if budget <= 0 then
      break
    end
  end
  if last then
    remove_members(partition, 0, last)
  end
  if split then
    add_members(rows_key, { NO_SCORE, split })
    fewer_bytes = fewer_bytes - member_bytes(split)
  end
  return last ~= nil
end

-- Remove some of what a sorted set has of a log, within the budget, and the same fields of hashes.
local function free_from(key, partition, ...)
  local names = some_of(key, partition, math.min(budget, MOST_AT_ONCE))
  if #names > 0 then
    for _, hash in ipairs({ ... }) do
      call('HDEL', hash, unpack(names))
    end
    call('ZREM', key, unpack(names))
  end
  budget = budget - #names
  return #names > 0
end

local function free_some(partition)
  return free_page(partition) or free_from(open_key, partition) or free_from(aborted_key, partition)
    or free_from(ids_key, partition, producers_key, transactions_key)
end

for at = 1, #request, 20 do
  local partition = sub(request, at, at + 19)
  if goes_on == 0 or call('HEXISTS', logs_key, partition) == 0 then
    -- Removals come first: a server without free memory allows removals, and then also the writes after them.
    begin_change()
    local ended = call('HDEL', logs_key, partition)
    ended = ended + call('HDEL', prefix .. 'packed', partition)
    ended = ended + call('HDEL', prefix .. 'compacted', partition)
    ended = ended + call('HDEL', prefix .. 'raised', partition)
    ended = ended + call('HDEL', shadows_key, partition)
    ended = ended + call('ZREM', followed_key, partition)
    changed = changed or ended > 0
    while budget > 0 and free_some(partition) do
      changed = true
    end
    if is_left(partition) then
      left[#left + 1] = partition
    end
  end
end
if changed then
  note_change(-removed, -fewer_bytes, 0, true)
  note_freed(bytes_freed, rows_freed)
end
return reply(left)
