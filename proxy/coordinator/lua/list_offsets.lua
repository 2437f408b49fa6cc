-- Offsets by timestamp, or by one of ListOffsets' special timestamps; -1000 is the last stable offset.
--
-- ARGV[2]  requests: topic ID and partition (20 bytes), i64 timestamp, i64 offset before which rows are ignored
-- Answers, per request: i16 error, i64 offset, i64 timestamp, i64 offset to continue from (-1 at the end). Offset and
-- timestamp are -1 if nothing matches. The answer to a MAX_TIMESTAMP in several calls is the highest of their answers.
--
-- Running maxima also count rows that were trimmed since. If a trimmed row had a later timestamp, rows are read one by one.

local REQUEST, REQUEST_BYTES = '>c20i8i8', 36
local ANSWER = '>i2i8i8i8'
local LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP, LATEST_STABLE_TIMESTAMP = -1, -2, -3, -1000
local ALL = -1
local LOWEST = -2 ^ 53
local MOST_ROWS_SEARCHED, PAGE = 500, 16
-- Number of rows that this call has read one by one, for all its requests together.
local searched = 0

local request = ARGV[2]

-- Ranks count among the members of a log, whose first member has rank `first` among the members of the shard.
local function running_maximum_at(first, rank)
  local member = call('ZRANGE', rows_key, first + rank, first + rank)[1]
  return parse('>i8', member, RUNNING_MAXIMUM_AT), member
end

-- The rank of the first of `count` members whose running maximum reaches the timestamp, and that member; `count` if there
-- is none.
--
-- Times mostly rise evenly with ranks. So two of three steps guess from the maxima at both ends, and the third halves.
local function rank_of_timestamp(first, count, timestamp)
  if count == 0 then
    return 0
  end
  local above, reaching = running_maximum_at(first, count - 1)
  if above < timestamp then
    return count
  end
  local below, oldest = running_maximum_at(first, 0)
  if below >= timestamp then
    return 0, oldest
  end
  local low, high, step = 0, count - 1, 0
  while high - low > 1 do
    step = step + 1
    local share = step % 3 == 0 and 0.5 or (timestamp - below) / (above - below)
    local middle = math.max(low + 1, math.min(low + math.floor((high - low) * share), high - 1))
    local found, member = running_maximum_at(first, middle)
    if found >= timestamp then
      high, above, reaching = middle, found, member
    else
      low, below = middle, found
    end
  end
  return high, reaching
end

-- Pass the rows whose maximum timestamp reaches a threshold to `look` (base, maximum timestamp), from the row of the offset
-- `from` on, and not before the member of `rank` (`known`: that member, if it was read already). `look` returns the threshold
-- for the next row, or nil at the end. Returns the offset to continue from if the call would take too long, else ALL. Each
-- request gets at least one member.
local function look_at_rows(first_rank, rank, known, count, from, threshold, look)
  local at, page = rank, 1
  while at < count do
    local members = known and { known }
      or call('ZRANGE', rows_key, first_rank + at, first_rank + math.min(at + page, count) - 1)
    known = nil
    for _, member in ipairs(members) do
      local first = row_of_timestamp(member, threshold)
      if first then
        for _, base, _, _, _, _, maximum in each_row(member, math.max(first, row_of_offset(member, from))) do
          if maximum >= threshold then
            threshold = look(base, maximum)
            if not threshold then
              return ALL
            end
          end
        end
      end
      at, searched = at + 1, searched + rows_in(member)
      if searched >= MOST_ROWS_SEARCHED and at < count then
        return parse('>i8', member, LAST_AT) + 1
      end
    end
    page = PAGE
  end
  return ALL
end

-- The first row whose own maximum reaches the timestamp.
local function first_row_from(partition, first, count, timestamp, from)
  local offset, found = -1, -1
  local rank, member = rank_of_timestamp(first, count, timestamp)
  local lowest_rank = count_before(partition, from)
  if lowest_rank > rank then
    rank, member = lowest_rank, nil
  end
  local again = look_at_rows(first, rank, member, count, from, timestamp, function(base, maximum)
    offset, found = math.max(base, from), maximum
  end)
  return 0, offset, found, again
end

-- The first row of the highest maximum.
local function first_newest_row(partition, first, count, from)
  if count == 0 then
    return 0, -1, -1, ALL
  end
  local highest = running_maximum_at(first, count - 1)
  local rank, member = rank_of_timestamp(first, count, highest)
  local lowest_rank = count_before(partition, from)
  local offset, found = -1, -1
  local function look(base, maximum)
    offset, found = math.max(base, from), maximum
    return maximum < highest and maximum + 1 or nil
  end
  if rank >= lowest_rank then
    look_at_rows(first, rank, member, rank + 1, from, highest, look)
    if offset >= 0 then
      return 0, offset, found, ALL
    end
  end
  local again = look_at_rows(first, lowest_rank, nil, count, from, LOWEST, look)
  return 0, offset, found, again
end

local function look_up(partition, log, timestamp, from)
  local log_start, high_watermark, _, _, _, _, stable = parse(LOG, log)
  if timestamp == EARLIEST_TIMESTAMP then
    return 0, log_start, -1, ALL
  elseif timestamp == LATEST_TIMESTAMP then
    return 0, high_watermark, -1, ALL
  elseif timestamp == LATEST_STABLE_TIMESTAMP then
    return 0, math.max(stable, log_start), -1, ALL
  end
  local first, confirmed = call('ZLEXCOUNT', rows_key, '-', '(' .. partition), count_before(partition, high_watermark)
  from = math.max(from, log_start)
  if timestamp == MAX_TIMESTAMP then
    return first_newest_row(partition, first, confirmed, from)
  end
  return first_row_from(partition, first, confirmed, timestamp, from)
end

local parts = {}
for at = 1, #request, REQUEST_BYTES do
  local partition, timestamp, from = parse(REQUEST, request, at)
  local log = call('HGET', logs_key, partition)
  if log then
    parts[#parts + 1] = pack(ANSWER, look_up(partition, log, timestamp, from))
  else
    parts[#parts + 1] = pack(ANSWER, UNKNOWN_TOPIC_OR_PARTITION, -1, -1, ALL)
  end
end
return reply(parts)
