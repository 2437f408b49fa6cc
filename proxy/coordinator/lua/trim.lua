-- Raise log starts for DeleteRecords or retention, and free the rows that are completely before them. The log start moves at
-- once; a call frees a bounded number of rows.
--
-- ARGV[2]  requests: topic ID and partition (20 bytes), i64 offset to delete before (-1 the high watermark, -2 none),
--          i64 retention in ms, i64 retention in bytes (-1 for none), u8 1 if time is append time
-- ARGV[3]  u32: most rows; i64: the caller's time in ms, by which records are no older than by the shard's. If the shard's clock is ahead,
--          or was for a moment, retention must not free what is younger by the caller's.
-- Answers, per request: i16 error, i64 log start, u8 1 if there is more to free; call again then.
--
-- Retention works as in Kafka's UnifiedLog, with a row instead of a segment: it frees rows from the oldest on, as long as the
-- newest timestamp in the row is older than the retention, or the log without the row still has at least the retention bytes. It frees
-- no row that has the last stable offset or ends after it: no row of an open transaction. DeleteRecords does.

local REQUEST, REQUEST_BYTES = '>c20i8i8i8B', 45
local OFFSET_OUT_OF_RANGE = 1
local HIGH_WATERMARK, NO_OFFSET, NO_TIMESTAMP = -1, -2, -1
local PAGE = 16 -- members of an index

local request = ARGV[2]
local budget, callers_time = parse('>I4i8', ARGV[3])
local now = math.min(clock(), callers_time)

local bytes_freed, rows_freed, removed, more_bytes, trimmed, changed = {}, {}, 0, 0, {}, false
local on_request = false -- true if a DeleteRecords has moved a log start
local parts = {}

local function expired(last, length, maximum, append_time, log, retention_ms, retention_bytes, by_append_time)
  if last < log.start then
    return true
  elseif last >= log.stable then
    return false
  end
  local time = (by_append_time == 1 or maximum == NO_TIMESTAMP) and append_time or maximum
  return (retention_ms >= 0 and now - time > retention_ms)
    or (retention_bytes >= 0 and log.bytes - length >= retention_bytes)
end

-- Count the rows of a member to free, at most `most` of them, and take them from the log; return their number.
local function free_from(member, most, log, ...)
  local freed = 0
  for number, _, last, segment, _, length, maximum, append_time in each_row(member) do
    if number > most or not expired(last, length, maximum, append_time, log, ...) then
      break
    end
    log.start, log.bytes, freed = math.max(log.start, last + 1), log.bytes - length, number
    if length > 0 then -- a marker uses no segment
      bytes_freed[segment] = (bytes_freed[segment] or 0) + length
      rows_freed[segment] = (rows_freed[segment] or 0) + 1
    end
  end
  return freed
end

-- Return the number of freed rows, and whether there may be more. The budget is counted in rows, so packing decides nothing: a view
-- of a journal that was rebuilt has the same log start after the same records.
local function free_rows(partition, log, ...)
  local count, from, split, ended = 0, 0, nil, false
  while not ended and count < budget do
    local page = members_from(partition, from, nil, PAGE)
    ended = #page == 0
    for _, member in ipairs(page) do
      local freed = free_from(member, budget - count, log, ...)
      if freed > 0 then
        count, from, more_bytes = count + freed, parse('>i8', member, LAST_AT) + 1, more_bytes - member_bytes(member)
      end
      if freed < rows_in(member) then
        split, ended = freed > 0 and without_first(member, freed), count < budget
      end
      if ended or count >= budget then
        break
      end
    end
  end
  -- Removals come first: a server without free memory allows removals, and then also the writes after them.
  if from > 0 then
    begin_change()
    remove_members(partition, 0, from - 1)
  end
  if split then
    add_members(rows_key, { NO_SCORE, split })
    more_bytes = more_bytes + member_bytes(split)
  end
  budget, removed = budget - count, removed + count
  return count, not ended
end

for at = 1, #request, REQUEST_BYTES do
  local partition, before, retention_ms, retention_bytes, by_append_time = parse(REQUEST, request, at)
  local packed_log = call('HGET', logs_key, partition)
  if not packed_log then
    parts[#parts + 1] = pack('>i2i8B', UNKNOWN_TOPIC_OR_PARTITION, -1, 0)
  else
    local start, high_watermark, bytes, rows, maximum, created, stable, last_append = parse(LOG, packed_log)
    local log = { start = start, stable = stable, bytes = bytes }
    if before == HIGH_WATERMARK then
      before = high_watermark
    end
    if before ~= NO_OFFSET and (before < 0 or before > high_watermark) then
      parts[#parts + 1] = pack('>i2i8B', OFFSET_OUT_OF_RANGE, -1, 0)
    else
      log.start = math.max(start, before)
      local count, more = free_rows(partition, log, retention_ms, retention_bytes, by_append_time)
      if log.start > start or count > 0 then
        changed, on_request = true, on_request or before > start
        local packed = pack(LOG, log.start, high_watermark, log.bytes, rows - count, maximum, created, stable, last_append,
          changed_at, LOG_FORMAT)
        begin_change()
        if count == 0 then
          call('HDEL', logs_key, partition) -- a removal comes first here too
        end
        call('HSET', logs_key, partition, packed)
        call('ZREMRANGEBYLEX', aborted_key, '[' .. partition, bound(partition, log.start, '('))
        trimmed[#trimmed + 1] = announced_ends(partition, log.start, high_watermark, stable)
      end
      parts[#parts + 1] = pack('>i2i8B', 0, log.start, more and 1 or 0)
    end
  end
end
if changed then
  note_change(-removed, more_bytes, 0, on_request)
  note_freed(bytes_freed, rows_freed)
  announce(trimmed)
end
return reply(parts)
