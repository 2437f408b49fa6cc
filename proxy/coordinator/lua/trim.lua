-- Raise log starts, as DeleteRecords asks or as retention wants it, and free rows that lie wholly before them. The log
-- start moves at once; rows are freed a bounded number per call.
--
-- ARGV[2]  requests: topic ID and partition (20 bytes), i64 offset to delete before (-1 the high watermark, -2 none),
--          i64 retention in ms, i64 retention in bytes (-1 for none), u8 whether time is append time
-- ARGV[3]  u32: most rows
-- Answers, per request: i16 error, i64 log start, u8 whether more is to be freed; call again then.
--
-- Retention is that of Kafka's UnifiedLog, with a row in the place of a segment: from the oldest on, as long as the
-- newest timestamp in it is older than the retention, or the log without it holds no less than its bytes.

local REQUEST, REQUEST_BYTES = '>c20i8i8i8B', 45
local OFFSET_OUT_OF_RANGE = 1
local HIGH_WATERMARK, NO_OFFSET, NO_TIMESTAMP = -1, -2, -1
local PAGE = 64

local request = ARGV[2]
local budget = parse('>I4', ARGV[3])
local now = clock()

local bytes_freed, rows_freed, removed, trimmed, changed = {}, {}, 0, {}, false
local parts = {}

local function expired(row, log, retention_ms, retention_bytes, by_append_time)
  local _, _, last, _, _, length, maximum, append_time = parse(ROW, row)
  if last < log.start then
    return true
  elseif last >= log.high_watermark then
    return false
  end
  local time = (by_append_time == 1 or maximum == NO_TIMESTAMP) and append_time or maximum
  return (retention_ms >= 0 and now - time > retention_ms)
    or (retention_bytes >= 0 and log.bytes - length >= retention_bytes)
end

local function free_rows(partition, log, ...)
  local index_key, count = prefix .. 'index:' .. partition, 0
  while count < budget do
    local page = call('ZRANGE', index_key, count, count + math.min(PAGE, budget - count) - 1)
    for _, row in ipairs(page) do
      if not expired(row, log, ...) then
        return count, false
      end
      local _, _, last, segment, _, length = parse(ROW, row)
      log.start = math.max(log.start, last + 1)
      log.bytes, count = log.bytes - length, count + 1
      bytes_freed[segment] = (bytes_freed[segment] or 0) + length
      rows_freed[segment] = (rows_freed[segment] or 0) + 1
    end
    if #page == 0 then
      return count, false
    end
  end
  return count, true
end

for at = 1, #request, REQUEST_BYTES do
  local partition, before, retention_ms, retention_bytes, by_append_time = parse(REQUEST, request, at)
  local packed_log = call('HGET', prefix .. 'logs', partition)
  if not packed_log then
    parts[#parts + 1] = pack('>i2i8B', UNKNOWN_TOPIC_OR_PARTITION, -1, 0)
  else
    local start, high_watermark, log_end, bytes, rows, maximum, created, last_append = parse(LOG, packed_log)
    local log = { start = start, high_watermark = high_watermark, bytes = bytes }
    if before == HIGH_WATERMARK then
      before = high_watermark
    end
    if before ~= NO_OFFSET and (before < 0 or before > high_watermark) then
      parts[#parts + 1] = pack('>i2i8B', OFFSET_OUT_OF_RANGE, -1, 0)
    else
      log.start = math.max(start, before)
      local count, more = free_rows(partition, log, retention_ms, retention_bytes, by_append_time)
      -- Removals come first: the server allows them when memory is short, and then also the writes after them.
      if count > 0 then
        call('ZREMRANGEBYRANK', prefix .. 'index:' .. partition, 0, count - 1)
        budget, removed = budget - count, removed + count
      end
      if log.start > start or count > 0 then
        changed = true
        local packed = pack(LOG, log.start, high_watermark, log_end, log.bytes, rows - count, maximum, created, last_append, FORMAT)
        call('HSET', prefix .. 'logs', partition, packed)
        trimmed[#trimmed + 1] = partition .. sub(packed, 1, 16) .. pack('>I4', 0)
      end
      parts[#parts + 1] = pack('>i2i8B', 0, log.start, more and 1 or 0)
    end
  end
end
if changed then
  note_change(-removed)
  note_freed(bytes_freed, rows_freed)
  call('PUBLISH', prefix .. 'announcements', table.concat(trimmed))
end
return reply(parts)
