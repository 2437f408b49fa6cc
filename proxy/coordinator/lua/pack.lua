-- Pack old rows of logs: the same rows in fewer bytes. The answers of all other scripts stay the same.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- ARGV[3]  u32: most rows to look at; u64: minimum age of a row, in ms since its append; u32 and u32: fewest and most rows
--          of a pack
-- Answers, per log: u8 1 if there is more to pack; call again then. Plus 2 if rows at or beyond the log's end were removed.
--
-- Rows are packed only with neighbours that have the same flags. `packed` has, by log,
-- the offset up to which it was done.
--
-- This script also looks for rows at or beyond their log's end, which only a write past the scripts leaves: the next commit would
-- give their offsets again. It fences the shard, before it writes anything else. In a view of a journal it removes them: the records
-- up to the shard's position made no such rows, so without them the shard is as those records left it. A commit does not look: a call
-- per log is too dear.

local MOST_DIFFERENCE = 2 ^ 48 - 1
local MOST_REMOVED = 1000 -- of a log in a call; the next call removes others
local MORE, REMOVED = 1, 2

local request = ARGV[2]
local budget, age, fewest, most = parse('>I4I8I4I4', ARGV[3])
local appended_until = clock() - age

local function bytes_for(number)
  local bytes = 1
  while number >= 2 ^ (8 * bytes) do
    bytes = bytes + 1
  end
  return bytes
end

-- Collects neighbours until one does not fit.
local function begin_group(flags, base, maximum, append_time)
  return {
    rows = {}, flags = flags, base = base, last = base - 1, maximum = nil,
    lowest_timestamp = maximum, highest_timestamp = maximum, lowest_time = append_time, highest_time = append_time,
    highest_position = 0, highest_length = 0,
  }
end

local function fits(group, flags, base, last, maximum, append_time)
  return #group.rows < most
    and flags == group.flags
    and base == group.last + 1
    and last - group.base <= MOST_DIFFERENCE
    and math.max(group.highest_timestamp, maximum) - math.min(group.lowest_timestamp, maximum) <= MOST_DIFFERENCE
    and math.max(group.highest_time, append_time) - math.min(group.lowest_time, append_time) <= MOST_DIFFERENCE
end

local function add(group, row, last, position, length, maximum, append_time)
  group.rows[#group.rows + 1] = row
  group.last, group.maximum = last, parse('>i8', row, RUNNING_MAXIMUM_AT)
  group.lowest_timestamp = math.min(group.lowest_timestamp, maximum)
  group.highest_timestamp = math.max(group.highest_timestamp, maximum)
  group.lowest_time = math.min(group.lowest_time, append_time)
  group.highest_time = math.max(group.highest_time, append_time)
  group.highest_position = math.max(group.highest_position, position)
  group.highest_length = math.max(group.highest_length, length)
end

local function build(partition, group)
  local a, b, c = bytes_for(group.last - group.base), bytes_for(group.highest_position), bytes_for(group.highest_length)
  local d = bytes_for(group.highest_timestamp - group.lowest_timestamp)
  local e = bytes_for(group.highest_time - group.lowest_time)
  local layout = '>I' .. a .. 'c16I' .. b .. 'I' .. c .. 'I' .. d .. 'I' .. e
  local parts = {
    pack(PACK, partition, group.last, group.base, group.base, group.flags + PACK_FORMAT, group.lowest_timestamp,
      group.lowest_time, #group.rows, a, b, c, d, e, group.maximum),
  }
  for index, row in ipairs(group.rows) do
    local last, _, _, _, segment, append_time, position, length, maximum = parse_row(row)
    parts[index + 1] = pack(layout, last - group.base, segment, position, length, maximum - group.lowest_timestamp,
      append_time - group.lowest_time)
  end
  return table.concat(parts)
end

local more_bytes, changed = 0, false

-- Replace rows by their pack. Removals come first: a server without free memory allows removals, and then also the writes
-- after them.
local function replace(partition, group)
  local member = build(partition, group)
  begin_change()
  remove_members(partition, group.base, group.last)
  add_members(rows_key, { NO_SCORE, member })
  more_bytes = more_bytes + member_bytes(member) - #group.rows * member_bytes(group.rows[1])
  changed = true
end

-- The place where the next call continues, and whether one is due.
local function pack_log(partition, from, high_watermark)
  local group, done = nil, from
  local found = members_from(partition, from, high_watermark, budget)
  budget = budget - #found

  -- The rows of a group that is too small stay as they are for good: a neighbour does not fit.
  local function end_group()
    if group then
      if #group.rows >= fewest then
        replace(partition, group)
      end
      done, group = group.last + 1, nil
    end
  end

  for _, row in ipairs(found) do
    if is_pack(row) then
      end_group()
      done = parse('>i8', row, LAST_AT) + 1
    else
      local last, base, _, format, _, append_time, position, length, maximum = parse_row(row)
      if append_time > appended_until then
        budget = budget + 1 -- it was read without a result
        if group and #group.rows >= fewest then
          end_group()
        end
        return done, false
      end
      if group and not fits(group, format - FORMAT, base, last, maximum, append_time) then
        end_group()
      end
      group = group or begin_group(format - FORMAT, base, maximum, append_time)
      add(group, row, last, position, length, maximum, append_time)
    end
  end
  if group and #group.rows >= fewest then
    end_group()
  end
  return done, budget == 0
end

local is_removed = {} -- by log: whether rows were removed
for at = 1, #request, 20 do
  local partition = sub(request, at, at + 19)
  local log = call('HGET', logs_key, partition)
  if log then
    local _, log_end = parse(LOG, log)
    local is_view = incarnation == JOURNAL_INCARNATION
    local beyond = members_from(partition, log_end, nil, is_view and MOST_REMOVED or 1)
    if beyond[1] and is_view then
      begin_change()
      call('ZREM', rows_key, unpack(beyond))
      is_removed[partition] = true
    elseif beyond[1] then
      local why = 'a log has rows at or beyond its end (something wrote to the store past the proxies)'
      call('HDEL', meta_key, 'settling') -- a removal comes first: the server allows it when memory is short
      call('HSETNX', meta_key, 'fenced', why)
      return redis.error_reply('FENCED ' .. why)
    end
  end
end

local parts, cursors = {}, {}
for at = 1, #request, 20 do
  local partition = sub(request, at, at + 19)
  local log = call('HGET', logs_key, partition)
  local more = false
  if log and budget >= most then
    local _, high_watermark = parse(LOG, log)
    local packed = call('HGET', prefix .. 'packed', partition)
    local from = packed and parse('>i8', packed) or 0
    local done
    done, more = pack_log(partition, from, high_watermark)
    if done > from then
      cursors[#cursors + 1], cursors[#cursors + 2] = partition, pack('>i8', done)
    end
  elseif log then
    more = true
  end
  parts[#parts + 1] = string.char((more and MORE or 0) + (is_removed[partition] and REMOVED or 0))
end
if changed then
  note_change(0, more_bytes)
end
if #cursors > 0 then
  call('HSET', prefix .. 'packed', unpack(cursors))
end
return reply(parts)
