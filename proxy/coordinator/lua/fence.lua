-- Whether this store still has what it acknowledged; the loader puts it behind shard.lua. A script that finds otherwise
-- ends here, before it does anything, and from then on every script of every proxy does, until unfence.lua.
--
-- ARGV[1]  behind what shard.lua reads: u8: 0 the script may write, 1 it only reads, 2 it only looks, whatever is wrong;
--          plus 16 if the caller wants the list of lives; u32: how long to settle, in ms; u64: the time in ms after which it is
--          too late, 0 for none; then the newest state that the caller knows: LIFE, u64 sequence, u64 offsets given, u64 time
--          of its newest write that must not be lost; the identity of the store that the caller knows it of (16 bytes), zeros
--          for any; the lives that led to that state, LIFE each, oldest first; empty until they are asked for
-- Replies begin with the state (shard.lua), and with u32 length and all lives, oldest first, if the caller knows another life
-- or wants them.
-- Errors: LIVES: something is lost, call again with the lives; FENCED why; SETTLING ms to wait; LATE; FOREIGN: this is the
-- store of another deployment.
--
-- A *life* is the time between two starts or promotions of a server: each has a replication ID of its own. A shard that moves to
-- another server of a cluster begins a life there, also when it comes back: that one has the ID of an earlier one. The first
-- write of a life is preceded by a pause in which all proxies have the time to say what they know (by any script), and then
-- writes down the sequence and the offsets given that the life began with. A caller whose newest state is of another life, or
-- of a higher sequence, knows from the lists of both sides where they part: the caller's lives after that are lost, however
-- much was written here since. If none of it must last, only bookkeeping is lost: the shard goes on by itself, once it may be
-- written to, as if unfence.lua had been run.
--
-- <prefix>meta   identity: of the store (16 bytes; touch.lua); fenced: why; lost: LOST, one per life, of all callers who knew more than is here; accepted: ACCEPTED, one per
--                life, of what unfence.lua has given up; lives: LIFE, oldest first; settling: a replication ID, i64 since when

local not_after -- see above
local lives_to_send = ''
local all_lost, why_fenced = '', nil -- of a fenced shard: LOST of all callers; the text
local sum_lost, give_up -- for scripts that look
local mode, settle_ms, known_life, known_sequence, known_offsets, known_must_last, known_identity, wants_lives
local MAY_WRITE, LOOKS, WANTS_LIVES = 0, 2, 16
local here -- the life of this server, of a script that may write; nil if the server does not say
mode, settle_ms, not_after, known_life, known_sequence, known_offsets, known_must_last, known_identity =
  parse('>BI4I8c48I8I8I8c16', ARGV[1], 13)
wants_lives = mode >= WANTS_LIVES
mode = mode % WANTS_LIVES

-- The time of a write is later than that of every write before, whatever the server's clock does.
local function note_time()
  written = math.max(clock(), written + 1)
end

-- What every reply and announcement begins with.
function state(lives)
  return life .. pack('>I8I8I8I4', sequence, offsets_given, must_last, #lives) .. lives
end

function finish_change()
  if writing then
    writing = false
    call('HDEL', meta_key, 'unfinished')
  end
end

function reply(parts)
  finish_change()
  return state(lives_to_send) .. table.concat(parts)
end

function announce(parts)
  finish_change()
  call('SPUBLISH', prefix .. 'announcements', state('') .. table.concat(parts))
end

-- `more_bytes`: of the members of indexes, as member_bytes counts them; `more_offsets`: that were given to batches; `lasts`: the time of
-- the newest write that must not be lost, or true for this one. A write that gives offsets is one. Bookkeeping is none: it is done again.
function note_change(more_rows, more_bytes, more_offsets, lasts)
  sequence, offsets_given = sequence + 1, offsets_given + (more_offsets or 0)
  note_time()
  if lasts == true or (more_offsets or 0) > 0 then
    must_last = written
  else
    must_last = math.max(must_last, lasts or 0)
  end
  if is_new then
    incarnation, life = new_incarnation, new_incarnation .. sub(life, 9)
  end
  index_rows, index_bytes = index_rows + more_rows, index_bytes + (more_bytes or 0)
  call('HSET', meta_key, 'state', packed_state(), 'unfinished', SCRIPT)
  writing = true
  if is_new then
    is_new = false
    call('HSET', meta_key, 'lives', life)
  end
end

if mode == MAY_WRITE then
  here = server_here()
end
local is_of_life = not here or here == sub(life, 9, LIFE_ID_BYTES)
local has_known = sub(known_life, 1, 8) == NO_INCARNATION or (known_life == life and sequence >= known_sequence)

if incarnation == JOURNAL_INCARNATION then
  return redis.error_reply('JOURNALLED')
end
-- Nearly all calls find nothing wrong, and make none of these functions.
if mode == LOOKS or meta[2] or meta[3] or not has_known or not is_of_life then
  local LOST, LOST_BYTES = '>c24I8I8I8I8', 56 -- ID of a life; sequence and offsets given from which, and to which, it is lost
  local ACCEPTED, ACCEPTED_BYTES = '>c24I8I8', 40 -- ID of a life; sequence and offsets given up to which it may be lost
  local SKIPPED = string.rep('-', 16) -- in place of a replication ID: sequences and offsets that unfence.lua passed over
  local MOST_LIVES, MOST_LOST, MOST_ACCEPTED = 256, 1024, 1024

  local known_lives = sub(ARGV[1], 114)

  -- Where the entry that begins with `first` is in a list of entries of that size; nil if it is not there. In a list of lives,
  -- `first` is the whole LIFE: a shard of a cluster may move to a server, away, and back, and has two lives with one ID then.
  local function find_entry(list, first, entry_bytes)
    for at = 1, #list, entry_bytes do
      if sub(list, at, at + #first - 1) == first then
        return at
      end
    end
    return nil
  end

  -- LOST of what the caller knows and what is not here any more, newest first; why that may be, nil if only bookkeeping is lost.
  local function find_lost()
    if has_known then
      return {}, nil
    end
    local lives, accepted = call('HGET', meta_key, 'lives') or '', call('HGET', meta_key, 'accepted') or ''
    local chain = known_lives
    local at = find_entry(chain, known_life, LIFE_BYTES)
    if not at then
      chain = chain .. known_life
      at = #chain - LIFE_BYTES + 1
    end
    local lost, here, to_sequence, to_offsets = {}, nil, known_sequence, known_offsets
    local had_until -- the time of the newest write that both have
    local parted -- that of the newest write before the two sides' lives parted; nil if they did not
    while at > 0 and not here do
      local id, began_sequence, began_offsets, began_written = parse(LIFE, chain, at)
      local from_sequence, from_offsets = began_sequence, began_offsets
      here = find_entry(lives, sub(chain, at, at + LIFE_BYTES - 1), LIFE_BYTES)
      if here and here + LIFE_BYTES <= #lives then
        local _
        _, from_sequence, from_offsets, had_until = parse(LIFE, lives, here + LIFE_BYTES)
      elseif here then
        from_sequence, from_offsets, had_until = sequence, offsets_given, written
      end
      if here and parted then
        had_until = math.min(had_until, parted) -- what was written here after that, the caller's side does not have
      end
      local accepted_at = find_entry(accepted, id, ACCEPTED_BYTES)
      if accepted_at then
        local _, accepted_sequence, accepted_offsets = parse(ACCEPTED, accepted, accepted_at)
        from_sequence, from_offsets = math.max(from_sequence, accepted_sequence), math.max(from_offsets, accepted_offsets)
      end
      if to_sequence > from_sequence then
        lost[#lost + 1] = pack(LOST, id, from_sequence, from_offsets, to_sequence, to_offsets)
      end
      to_sequence, to_offsets, parted, at = began_sequence, began_offsets, began_written, at - LIFE_BYTES
    end
    if #lost == 0 or known_must_last == 0 or (here and known_must_last <= had_until) then
      return lost, nil
    elseif is_new then
      return lost, 'it is empty and was not (emptied, or another store)'
    end
    return lost, here and 'it went back (restored, or a failover that lost writes)'
      or 'it is not the one that was written to before (emptied since, or another store)'
  end

  -- A list of LOST with more: of each life the most that anybody knows.
  local function with_lost(list, more)
    for _, entry in ipairs(more) do
      local _, _, _, to_sequence = parse(LOST, entry)
      local at = find_entry(list, sub(entry, 1, LIFE_ID_BYTES + 8), LOST_BYTES) -- the same life, lost from the same sequence
      if not at and #list < MOST_LOST * LOST_BYTES then
        list = list .. entry
      elseif at then
        local _, _, _, there = parse(LOST, list, at)
        if to_sequence > there then
          list = sub(list, 1, at - 1) .. entry .. sub(list, at + LOST_BYTES)
        end
      end
    end
    return list
  end

  -- Writes and offsets of a list of LOST, and the offsets in it that were never given but skipped.
  function sum_lost(list)
    local writes, offsets, skipped = 0, 0, 0
    for at = 1, #list, LOST_BYTES do
      local id, from_sequence, from_offsets, to_sequence, to_offsets = parse(LOST, list, at)
      if sub(id, 9) == SKIPPED then
        skipped = skipped + to_offsets - from_offsets
      else
        writes, offsets = writes + to_sequence - from_sequence, offsets + to_offsets - from_offsets
      end
    end
    return writes, offsets, skipped
  end

  -- Whether this is the store of another deployment: what the caller knows is not held against that. One without an identity
  -- was emptied.
  local function is_foreign()
    local identity = known_identity ~= NO_SERVER and call('HGET', meta_key, 'identity')
    return identity and identity ~= known_identity
  end

  -- Refuse this shard to everyone from now on. A replica can't note that.
  local function fence(why)
    finish_change()
    redis.pcall('HDEL', meta_key, 'settling') -- a removal comes first: the server allows it when memory is short
    redis.pcall('HSETNX', meta_key, 'fenced', why)
    return redis.error_reply('FENCED ' .. why)
  end

  -- A replica refuses it. The caller that knows of the loss goes on saying so, and says it to the primary when it gets there.
  local function note_loss(why, list)
    redis.pcall('HDEL', meta_key, 'settling') -- a removal comes first: the server allows it when memory is short
    redis.pcall('HSETNX', meta_key, 'fenced', why)
    redis.pcall('HSET', meta_key, 'lost', list)
  end

  -- Make room in a list of lives that has become too long. The oldest life in which nothing was written goes first: it
  -- shows no loss that its successor does not show, and hardly any caller knows it. The life of an idle shard's last writer is
  -- known to all callers, however often its server is started.
  local function shortened(lives)
    while #lives > MOST_LIVES * LIFE_BYTES do
      local drop = 1
      for at = 1, #lives - LIFE_BYTES, LIFE_BYTES do
        local _, began_with = parse(LIFE, lives, at)
        local _, next_began_with = parse(LIFE, lives, at + LIFE_BYTES)
        if began_with == next_began_with then
          drop = at
          break
        end
      end
      lives = sub(lives, 1, drop - 1) .. sub(lives, drop + LIFE_BYTES)
    end
    return lives
  end

  -- See that the life of this server is written down; how many ms to wait before that may be done, nil where it is.
  local function enter_life()
    if is_of_life then
      return nil
    end
    if not is_new and settle_ms > 0 then
      local settling, now = call('HGET', meta_key, 'settling'), clock()
      local left = settle_ms
      local since = settling and sub(settling, 1, 16) == here and parse('>i8', settling, 17)
      if since and since <= now then -- else the clock was set back, and it begins again
        left = since + settle_ms - now
      else
        call('HDEL', meta_key, 'settling') -- a removal comes first: see above
        call('HSET', meta_key, 'settling', here .. pack('>i8', now))
      end
      if left > 0 then
        return left
      end
    end
    life = pack(LIFE, incarnation .. here, sequence, offsets_given, written)
    call('HDEL', meta_key, 'settling') -- a removal comes first: see above
    if not is_new then
      call('HSET', meta_key, 'state', packed_state(), 'lives', shortened((call('HGET', meta_key, 'lives') or '') .. life))
    end
    return nil
  end

  -- Go on without what a list of LOST has, and with `raise` more offsets given: under a new incarnation, with sequences above all
  -- in the list.
  function give_up(list, raise)
    local highest_sequence = sequence
    local accepted = call('HGET', meta_key, 'accepted') or ''
    for at = 1, #list, LOST_BYTES do
      local id, _, _, to_sequence, to_offsets = parse(LOST, list, at)
      highest_sequence = math.max(highest_sequence, to_sequence)
      local accepted_at = find_entry(accepted, id, ACCEPTED_BYTES)
      if accepted_at then
        -- Of two lives with one ID, the later one has the higher numbers.
        local _, sequence_before, offsets_before = parse(ACCEPTED, accepted, accepted_at)
        to_sequence, to_offsets = math.max(to_sequence, sequence_before), math.max(to_offsets, offsets_before)
        accepted = sub(accepted, 1, accepted_at - 1) .. sub(accepted, accepted_at + ACCEPTED_BYTES)
      end
      accepted = accepted .. pack(ACCEPTED, id, to_sequence, to_offsets)
    end
    -- A removal comes first: the server allows it when memory is short, and then also the writes after it.
    begin_change()
    call('HDEL', meta_key, 'fenced', 'lost', 'settling')
    local lives = (call('HGET', meta_key, 'lives') or '')
      .. pack(LIFE, new_incarnation .. SKIPPED, sequence, offsets_given, written)
    incarnation, sequence, offsets_given = new_incarnation, highest_sequence + 1, offsets_given + raise
    -- This is the first write of the life: it began with one less.
    life = pack(LIFE, incarnation .. (server_here() or NO_SERVER), highest_sequence, offsets_given, written)
    note_time()
    call('HSET', meta_key, 'state', packed_state(), 'lives', shortened(lives .. life),
      'accepted', sub(accepted, -MOST_ACCEPTED * ACCEPTED_BYTES))
    is_new = false
  end

  local lost, why_lost = find_lost()
  local half_done = meta[3] and meta[3] .. ' stopped halfway in it, as the store rejected a command (see the rights of '
    .. "redis.url's user in docs/operations/redis.md)"
  why_fenced = meta[2] or why_lost or half_done
  if why_fenced then
    all_lost = with_lost(call('HGET', meta_key, 'lost') or '', why_lost and lost or {})
  end
  if all_lost ~= '' then
    why_fenced = string.format('%s: %d of its writes are gone, with %d offsets', why_fenced, sum_lost(all_lost))
  end
  if mode ~= LOOKS then
    if #lost > 0 and known_lives == '' then
      return redis.error_reply('LIVES')
    end
    if #lost > 0 and is_foreign() then
      return redis.error_reply('FOREIGN')
    end
    if why_lost then
      note_loss(why_lost, all_lost)
    end
    if meta[2] or why_lost then
      return redis.error_reply('FENCED ' .. why_fenced)
    elseif half_done then
      return fence(half_done)
    end
    if not_after > 0 and clock() > not_after then
      return redis.error_reply('LATE')
    end
    local wait_ms = mode == MAY_WRITE and enter_life()
    if wait_ms then
      return redis.error_reply(string.format('SETTLING %d', wait_ms))
    end
    if mode == MAY_WRITE and #lost > 0 then
      give_up(table.concat(lost), 0)
    end
  end
elseif not_after > 0 and clock() > not_after then
  return redis.error_reply('LATE')
end
if wants_lives or known_life ~= life then
  lives_to_send = call('HGET', meta_key, 'lives') or ''
end
