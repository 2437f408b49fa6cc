-- Shared by the scripts of one shard; the loader puts it in front of each.
--
-- SCRIPT   name of the script; the loader sets it
-- KEYS[1]  prefix of all keys of the shard; it holds the hash tag, so one Redis Cluster slot has them all
-- ARGV[1]  8 bytes: incarnation to give a shard that has none; u32: number of shards the caller counts with; then what
--          fence.lua goes by
--
-- <prefix>meta               hash: incarnation, sequence (of writes), shards, rows and index_bytes (of all indexes), offsets
--                            (given so far, in all logs), life (a LIFE without its incarnation), written (time of the newest
--                            write), must_last (time of the newest write that must not be lost), unfinished (the script that
--                            writes; nobody sees it unless that script stopped halfway), and what fence.lua keeps
-- <prefix>logs               hash: topic ID and partition (20 bytes) -> LOG
-- <prefix>index:<20 bytes>   sorted set by last offset: ROW, or many of them packed (rows.lua)
-- <prefix>packed             hash: topic ID and partition -> i64 offset up to which its index was packed
-- <prefix>compacted          hash: topic ID and partition -> i64 offset up to which it was compacted
-- <prefix>raised             hash: topic ID and partition -> i64 log end to which unfence.lua raised it
-- <prefix>producers:<20>     hash: producer ID (8 bytes) -> PRODUCER, then one REMEMBERED per batch, oldest first
-- <prefix>answers:<segment>  string that grows: 20 bytes, u32 length, one BATCH_ANSWER per batch, and so on; expires
-- <prefix>segments           hash: segment -> USE
-- <prefix>garbage            sorted set by time in ms since when nothing in this shard uses it: segment
-- <prefix>tombstones         sorted set by time in ms since when commits of it are refused: segment
-- <prefix>announcements      pub/sub channel
--
-- Numbers are doubles here: exact up to 2^53. Producer IDs are never made numbers.

local call, pack, parse, sub = redis.call, struct.pack, struct.unpack, string.sub

-- LOG and ROW have 65 bytes for a reason: up to 64 the server keeps hashes and sets of a few hundred entries as lists,
-- where each access looks at every entry.
local FORMAT = 1
-- Log start, high watermark, log end, bytes, rows, maximum timestamp of all rows, creation, last append, format.
local LOG = '>i8i8i8i8i8i8i8i8B'
-- Format, base, last, segment, position, length, maximum timestamp, append time, running maximum timestamp.
local ROW = '>Bi8i8c16I4I4i8i8i8'
local ROW_LAST_AT, ROW_LENGTH_AT, ROW_RUNNING_MAXIMUM_AT = 10, 38, 58
local USE = '>i8I4' -- bytes, rows
-- The ID of a life is the incarnation and half of the server's replication ID. Then the sequence, the offsets given, and the
-- time of the newest write, with which it began.
local LIFE, LIFE_BYTES, LIFE_ID_BYTES = '>c24I8I8I8', 48, 24
local UNKNOWN_TOPIC_OR_PARTITION = 3

local prefix = KEYS[1]
local NO_INCARNATION, NO_SERVER = string.rep('\0', 8), string.rep('\0', 16)
local new_incarnation, expected_shards = parse('>c8I4', ARGV[1])
local meta = call('HMGET', prefix .. 'meta', 'incarnation', 'sequence', 'shards', 'rows', 'index_bytes', 'offsets', 'life',
  'fenced', 'unfinished', 'written', 'must_last')
local incarnation, sequence = meta[1] or NO_INCARNATION, tonumber(meta[2] or 0)
local index_rows, index_bytes = tonumber(meta[4] or 0), tonumber(meta[5] or 0)
local offsets_given = tonumber(meta[6] or 0)
local written, must_last = tonumber(meta[10] or 0), tonumber(meta[11] or 0)
local life = incarnation .. (meta[7] or NO_SERVER .. pack('>I8I8I8', 0, 0, 0))
local lives_told = '' -- fence.lua sets it
if meta[3] and tonumber(meta[3]) ~= expected_shards then
  return redis.error_reply('SHARDS ' .. meta[3])
end

-- A script whose command is rejected keeps what it has written before. So the first write of each script is its own name, and
-- the last removes that again: a name that is found tells of a script that stopped halfway (fence.lua).
local writing = false

-- To be called before the first write by each script that removes something before `note_change`, or may make room. It begins
-- with a removal: the server allows that when memory is short, and then also the writes after it.
local function begin_change()
  if not writing then
    writing = true
    call('HDEL', prefix .. 'meta', 'unfinished')
    call('HSET', prefix .. 'meta', 'unfinished', SCRIPT)
  end
end

-- In milliseconds since 1970.
local function clock()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The time of a write is later than that of every write before, whatever the server's clock does.
local function note_time()
  written = math.max(clock(), written + 1)
end

-- To be called once by whatever writes. `more_bytes`: of the members of indexes, as member_bytes counts them;
-- `more_offsets`: that were given to batches; `lasts`: the time of the newest write that must not be lost, or true for this one.
-- A write that gives offsets is one. Bookkeeping is none: it is done again.
local function note_change(more_rows, more_bytes, more_offsets, lasts)
  sequence, offsets_given = sequence + 1, offsets_given + (more_offsets or 0)
  note_time()
  if lasts == true or (more_offsets or 0) > 0 then
    must_last = written
  else
    must_last = math.max(must_last, lasts or 0)
  end
  if not meta[1] then
    incarnation, life = new_incarnation, new_incarnation .. sub(life, 9)
  end
  call('HSET', prefix .. 'meta', 'incarnation', incarnation, 'sequence', sequence, 'shards', expected_shards,
    'rows', index_rows + more_rows, 'index_bytes', index_bytes + (more_bytes or 0), 'offsets', offsets_given,
    'written', written, 'must_last', must_last, 'unfinished', SCRIPT)
  writing = true
  if not meta[1] then
    call('HSET', prefix .. 'meta', 'lives', life)
  end
end

-- What every reply and announcement begins with.
local function state(lives)
  return life .. pack('>I8I8I8I4', sequence, offsets_given, must_last, #lives) .. lives
end

local function finish_change()
  if writing then
    writing = false
    call('HDEL', prefix .. 'meta', 'unfinished')
  end
end

local function reply(parts)
  finish_change()
  return state(lives_told) .. table.concat(parts)
end

-- The last write of a script: what is not announced is there all the same.
local function announce(parts)
  finish_change()
  call('PUBLISH', prefix .. 'announcements', state('') .. table.concat(parts))
end

-- Rows are gone, after `note_change`: what that leaves of the segments' use, by segment.
local function note_freed(bytes_freed, rows_freed)
  local segments, key = {}, prefix .. 'segments'
  for segment in pairs(bytes_freed) do
    segments[#segments + 1] = segment
  end
  if #segments == 0 then
    return
  end
  local less_used, unused, garbage = {}, {}, {}
  for index, use in ipairs(call('HMGET', key, unpack(segments))) do
    local segment = segments[index]
    local bytes, rows = 0, 0
    if use then
      bytes, rows = parse(USE, use)
      bytes, rows = bytes - bytes_freed[segment], rows - rows_freed[segment]
    end
    if rows > 0 then
      less_used[#less_used + 1], less_used[#less_used + 2] = segment, pack(USE, bytes, rows)
    else
      unused[#unused + 1] = segment
      garbage[#garbage + 1], garbage[#garbage + 2] = written, segment
    end
  end
  -- A few hundred at most, as rows are freed.
  if #unused > 0 then
    call('HDEL', key, unpack(unused))
    call('ZADD', prefix .. 'garbage', unpack(garbage))
  end
  if #less_used > 0 then
    call('HSET', key, unpack(less_used))
  end
end
