-- Whether this store still has what it acknowledged; the loader puts it behind shard.lua. A script that finds otherwise
-- ends here, before it does anything, and from then on every script of every proxy does, until unfence.lua.
--
-- ARGV[1]  behind what shard.lua reads: u8: 0 the script may write, 1 it only reads, 2 it only looks, whatever is wrong;
--          u32: how long to settle, in ms; u64: the time in ms after which it is too late, 0 for none; then the newest state
--          that the caller knows: incarnation (8 bytes), u64 sequence, life (16 bytes), u64 offsets given; the identity of
--          the store that the caller knows it of (16 bytes), zeros for any
-- Errors: FENCED why; SETTLING ms to wait; LATE; FOREIGN: this is the store of another deployment.
--
-- A *life* is the time between two starts or promotions of a server: each has a replication ID of its own. The first
-- write of a life is preceded by a pause in which all proxies have the time to say what they know (by any script), and then
-- writes down the sequence that the life began with. Who knows of a higher one, from a life before, knows what was lost;
-- also when as much was written since.
--
-- <prefix>meta   fenced: why; known: KNOWN of those who said more than is here, one per incarnation; accepted: ACCEPTED of
--                what unfence.lua has given up; lives: LIFE, oldest first; settling: a life, i64 since when

local MAY_WRITE, LOOKS = 0, 2
local KNOWN, KNOWN_BYTES = '>c8I8I8', 24 -- incarnation, sequence, offsets given
local ACCEPTED, ACCEPTED_BYTES = '>c8I8', 16 -- incarnation, the last sequence of it that may be lost
local LIFE, LIFE_BYTES = '>c16I8', 24 -- replication ID (its first half), sequence that it began with
local MOST_LIVES = 256
local MOST_KNOWN = 32

local meta_key = prefix .. 'meta'
local mode, settle_ms, not_after, known_incarnation, known_sequence, known_life, known_offsets, known_identity =
  parse('>BI4I8c8I8c16I8c16', ARGV[1], 13)

local function server_life()
  local told = redis.pcall('INFO', 'replication')
  return type(told) == 'string' and string.match(told, 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x)') or nil
end

-- The sequence with which a later life than the known one began where that is lower; 0 where the known one never was.
local function lost_after()
  local lives = call('HGET', meta_key, 'lives') or ''
  local found, lowest = false, nil
  for at = 1, #lives, LIFE_BYTES do
    local one, began_with = parse(LIFE, lives, at)
    if found and began_with < known_sequence then
      lowest = math.min(lowest or began_with, began_with)
    end
    found = found or one == known_life
  end
  return found and lowest or (not found and 0 or nil)
end

-- What the caller knows that is not here any more; nil where all of it is.
local function find_loss()
  if known_incarnation == NO_INCARNATION then
    return nil
  elseif known_incarnation ~= incarnation then
    local accepted = call('HGET', meta_key, 'accepted') or ''
    for at = 1, #accepted, ACCEPTED_BYTES do
      local past, last = parse(ACCEPTED, accepted, at)
      if past == known_incarnation and known_sequence <= last then
        return nil
      end
    end
    return meta[1] and 'it is not the one that was written to before (emptied since, or another store)'
      or 'it is empty and was not (emptied, or another store)'
  end
  local began_with = sequence
  if sequence >= known_sequence then
    began_with = known_life ~= life and known_life ~= NO_LIFE and lost_after() or nil
  end
  if began_with == nil then
    return nil
  elseif began_with == 0 then
    return 'it has never heard of the server that took its newest writes (restored, or a failover that lost them)'
  end
  return string.format('%d of its writes are gone (restored, or a failover that lost them)', known_sequence - began_with)
end

-- Keep the highest of each incarnation. `list` is packed KNOWN.
local function with_known(list, more_incarnation, more_sequence, more_offsets)
  local entries, there = {}, false
  for at = 1, #list, KNOWN_BYTES do
    local one, one_sequence, one_offsets = parse(KNOWN, list, at)
    if one == more_incarnation then
      there = true
      one_sequence, one_offsets = math.max(more_sequence, one_sequence), math.max(more_offsets, one_offsets)
    end
    entries[#entries + 1] = pack(KNOWN, one, one_sequence, one_offsets)
  end
  if not there then
    entries[#entries + 1] = pack(KNOWN, more_incarnation, more_sequence, more_offsets)
  end
  return sub(table.concat(entries), -MOST_KNOWN * KNOWN_BYTES)
end

-- Whether this is the store of another deployment: what the caller knows is not held against that. One without an identity
-- was emptied.
local function is_foreign()
  local identity = known_identity ~= NO_LIFE and call('HGET', 'diskless:{registry}:store', 'identity')
  return identity and identity ~= string.gsub(known_identity, '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end)
end

-- Refuse this shard to everyone from now on. A replica can't note that.
local function fence(why)
  redis.pcall('HDEL', meta_key, 'settling') -- a removal comes first: the server allows it when memory is short
  redis.pcall('HSETNX', meta_key, 'fenced', why)
  return redis.error_reply('FENCED ' .. why)
end

-- A replica refuses it. Whoever knows of the loss goes on saying so, and says it to the primary when it gets there.
local function note_loss(why)
  redis.pcall('HDEL', meta_key, 'settling') -- a removal comes first: the server allows it when memory is short
  redis.pcall('HSETNX', meta_key, 'fenced', why)
  local known = call('HGET', meta_key, 'known') or ''
  local more = with_known(known, known_incarnation, known_sequence, known_offsets)
  if more ~= known then
    redis.pcall('HSET', meta_key, 'known', more)
  end
end

-- Make room in a list of lives that has become too long. One in which nothing was written goes first, the oldest of them: it
-- tells of no loss that its successor does not tell of, and hardly anybody knows it, while an idle shard's last writer is
-- what all know, however often its server is started.
local function without_one(lives)
  for at = 1, #lives - LIFE_BYTES, LIFE_BYTES do
    local _, began_with = parse(LIFE, lives, at)
    local _, next_began_with = parse(LIFE, lives, at + LIFE_BYTES)
    if began_with == next_began_with then
      return sub(lives, 1, at - 1) .. sub(lives, at + LIFE_BYTES)
    end
  end
  return sub(lives, LIFE_BYTES + 1)
end

-- See that the life of this server is written down; how many ms to wait before that may be done, nil where it is.
local function enter_life()
  local here = server_life()
  if not here or here == life then
    return nil
  end
  if meta[1] and settle_ms > 0 then
    local settling, now = call('HGET', meta_key, 'settling'), clock()
    local left = settle_ms
    if settling and sub(settling, 1, 16) == here then
      left = math.min(parse('>i8', settling, 17) + settle_ms - now, settle_ms)
    else
      call('HDEL', meta_key, 'settling') -- a removal comes first: see above
      call('HSET', meta_key, 'settling', here .. pack('>i8', now))
    end
    if left > 0 then
      return left
    end
  end
  life = here
  local lives = (call('HGET', meta_key, 'lives') or '') .. pack(LIFE, life, sequence)
  if #lives > MOST_LIVES * LIFE_BYTES then
    lives = without_one(lives)
  end
  call('HDEL', meta_key, 'settling') -- a removal comes first: see above
  call('HSET', meta_key, 'life', life, 'lives', lives)
  return nil
end

local loss = find_loss()
local half_done = meta[9] and meta[9] .. ' stopped halfway in it, as the store rejected a command (see the rights of '
  .. "redis.url's user in docs/operations.md)"
if mode ~= LOOKS then
  if loss and is_foreign() then
    return redis.error_reply('FOREIGN')
  end
  if loss then
    note_loss(loss)
  end
  if loss or meta[8] then
    return redis.error_reply('FENCED ' .. (meta[8] or loss))
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
end
