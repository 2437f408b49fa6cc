-- The order of the journal: this shard is a view of one partition of it. The loader puts this file after shard.lua, in place of
-- fence.lua.
--
-- A record of the journal is the call of one script. Records are applied in the order of their positions, each exactly once, by
-- whatever proxy comes first. So a shard that has lost writes, or all of them, has only fallen behind, and two primaries of one
-- replica set compute the same.
--
-- A script that is applied depends on nothing but the shard and its record: its time is that of the record's append. Nothing else
-- changes a shard, except pack.lua, which changes no answer of any script.
--
-- ARGV[1]  after what shard.lua reads: u8: 0 apply a record, 1 read, 2 look, whatever is wrong, 3 tidy up, 4 load a snapshot; plus 16
--          if nothing is to be announced; i64 position of the record; for a read, the position up to which the caller knows that
--          records were applied; i64 time of the record's append in ms; u64 the time in ms after which it is too late, 0 for none; identity of the journal
--          (16 bytes)
-- Errors: BEHIND position: apply the records from there on first; UNPROVED position, replication ID: as before, up to the end of the
-- journal, then prove.lua; LATE the shard's time; BROKEN why: reset.lua, then all records again; APPLIED: the record was applied a while ago, and its
-- reply is gone; RESTORING token, pages: a snapshot is being loaded (load_begin.lua); FOREIGN: the store of another deployment or
-- journal; GUARDED: a shard that is no view of a journal.
--
-- The sequence of the shard's state is the position of the next record to apply. The place of the server's life has the journal's
-- identity.
--
-- <prefix>meta  proved: half of the replication ID of the server that has had all records of the journal since it was started or
--               promoted
--               snapshot: L, token (16 hex digits), space, number of pages: a snapshot is being loaded; C, token, half of the
--               replication ID, time in ms until which the copy counts: the shard is being copied (copying.lua)

local APPLIES, READS, LOOKS, TIDIES, LOADS, QUIET = 0, 1, 2, 3, 4, 16
local REPLIES_KEPT_MS = 60000
local mode, position, time, not_after, identity = parse('>Bi8i8I8c16', ARGV[1], 13)
local is_quiet = mode >= QUIET
mode = mode % QUIET

local view_life = JOURNAL_INCARNATION .. identity .. NO_FIGURES
if not is_new and life ~= view_life then
  return redis.error_reply(incarnation == JOURNAL_INCARNATION and 'FOREIGN' or 'GUARDED')
end
incarnation, life = JOURNAL_INCARNATION, view_life

-- Names that scripts of the guard use; a view has nothing to fence, and is held against nothing.
local all_lost, why_fenced, known_identity = '', nil, NO_SERVER
local function sum_lost()
  return 0, 0
end

local is_noted = false -- whether the state was written by this call

local function write_state()
  is_noted = true
  call('HSET', meta_key, 'state', packed_state())
end

function note_change(more_rows, more_bytes, more_offsets)
  offsets_given = offsets_given + (more_offsets or 0)
  index_rows, index_bytes = index_rows + more_rows, index_bytes + (more_bytes or 0)
  is_noted, writing = true, true
  call('HSET', meta_key, 'state', packed_state(), 'unfinished', SCRIPT)
end

function finish_change()
  if mode == APPLIES and not replays and not is_noted then
    write_state()
  end
  if writing then
    writing = false
    call('HDEL', meta_key, 'unfinished')
  end
end

-- In place of the figures with which a server's life began, a view has the bytes of its indexes: a proxy that knows them appends no
-- commit to a shard that is full.
function state(lives)
  return JOURNAL_INCARNATION .. identity .. pack('>I8I8I8I8I8I8I4', index_bytes, 0, 0, sequence, offsets_given, must_last, #lives)
    .. lives
end

-- A proxy may find that another one has applied its record already. A commit keeps its answers in another way (commit.lua).
function reply(parts)
  finish_change()
  local text = state('') .. table.concat(parts)
  if mode == APPLIES and SCRIPT ~= 'commit' then
    call('SET', prefix .. 'reply:' .. pass .. position, text, 'PX', REPLIES_KEPT_MS)
  end
  return text
end

function announce(parts)
  finish_change()
  if not is_quiet then
    call('SPUBLISH', prefix .. 'announcements', state('') .. table.concat(parts))
  end
end

if meta[6] and sub(meta[6], 1, 1) == 'L' and mode ~= LOADS and mode ~= LOOKS then
  return redis.error_reply('RESTORING ' .. sub(meta[6], 2))
end
if meta[3] and mode ~= LOADS then
  why_fenced = meta[3] .. ' stopped halfway in it, as the store rejected a command'
  if mode ~= LOOKS then
    return redis.error_reply('BROKEN ' .. why_fenced)
  end
end
if mode == APPLIES then
  if position > sequence then
    return redis.error_reply(string.format('BEHIND %d', sequence))
  end
  replays = position < sequence
  if replays and SCRIPT ~= 'commit' then
    return call('GET', prefix .. 'reply:' .. pass .. position) or redis.error_reply('APPLIED')
  end
  if replays then
    now_ms = time
  else
    changed_at, sequence, now_ms = position, position + 1, math.max(time, written)
    written = now_ms
  end
  if not_after > 0 and now_ms > not_after then
    finish_change()
    return redis.error_reply(string.format('LATE %d', now_ms))
  end
elseif mode == TIDIES then
  now_ms = written
elseif mode == READS then
  if position > sequence then
    return redis.error_reply(string.format('BEHIND %d', sequence))
  end
  local here = server_here()
  if not here or meta[4] ~= here then
    return redis.error_reply(string.format('UNPROVED %d %s', sequence, here or ''))
  end
end
