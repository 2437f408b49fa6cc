-- Notes what a script changes while this shard is copied to a snapshot. The loader puts this file after journal.lua.
--
-- A copy is made in pages, and a page may be out of date at once. So whatever changes after snapshot_begin.lua is noted in
-- <prefix>dirty, and snapshot_drain.lua copies it again. A copy is exact when nothing is left there: that is one step, and so one
-- position of the journal. Nothing depends on what a script does; it is noted by the commands that it calls.
--
-- The name of a thing is its kind (1 byte), then the field or member; for the answers to a commit, the segment.

local MOST_DIRTY = 200000 -- then the copy is given up
local function kinds_of_keys()
  return {
    [logs_key] = 'l', [prefix .. 'packed'] = 'k', [prefix .. 'compacted'] = 'c', [prefix .. 'raised'] = 'u',
    [prefix .. 'producers'] = 'p', [prefix .. 'segments'] = 's', [rows_key] = 'r', [prefix .. 'producer_ids'] = 'i',
    [prefix .. 'garbage'] = 'g', [prefix .. 'tombstones'] = 't', [prefix .. 'txn'] = 'x', [prefix .. 'open'] = 'o',
    [prefix .. 'aborted'] = 'b', [prefix .. 'shadows'] = 'h', [prefix .. 'followed'] = 'f',
  }
end
local ANSWERS_KIND, ANSWERS_PREFIX, DIRTY_KEY = 'a', prefix .. 'answers:' .. pass, prefix .. 'dirty'
local UNTIL_AT = 34 -- in meta's field `snapshot`, after C, token and server

-- Whether the copy with this token was begun on this server, and still counts.
local function is_copied_as(token)
  local copying = 'C' .. token .. (server_here() or NO_SERVER)
  return meta[6] and sub(meta[6], 1, #copying) == copying
end

if meta[6] and sub(meta[6], 1, 1) == 'C' and (mode == APPLIES or mode == TIDIES) then
  local plain, KINDS = call, kinds_of_keys()
  local function note(kind, names, first, step)
    local scored = {}
    for index = first, #names, step do
      scored[#scored + 1], scored[#scored + 2] = '0', kind .. names[index]
      if #scored == 1000 or index + step > #names then
        plain('ZADD', DIRTY_KEY, unpack(scored))
        scored = {}
      end
    end
    if plain('ZLEXCOUNT', DIRTY_KEY, '-', '+') > MOST_DIRTY or written > tonumber(sub(meta[6], UNTIL_AT)) then
      plain('UNLINK', DIRTY_KEY)
      plain('HDEL', meta_key, 'snapshot')
      call = plain
    end
  end
  call = function(command, key, ...)
    local kind = KINDS[key]
    if kind and command == 'ZREMRANGEBYLEX' then
      local first, last = ...
      note(kind, plain('ZRANGEBYLEX', key, first, last), 1, 1)
    end
    local answer = plain(command, key, ...)
    if kind and (command == 'HSET' or command == 'HDEL' or command == 'ZREM') then
      note(kind, { ... }, 1, command == 'HSET' and 2 or 1)
    elseif kind and command == 'ZADD' then
      note(kind, { ... }, (...) == 'NX' and 3 or 2, 2)
    elseif (command == 'SET' or command == 'APPEND') and sub(key, 1, #ANSWERS_PREFIX) == ANSWERS_PREFIX then
      note(ANSWERS_KIND, { sub(key, #ANSWERS_PREFIX + 1) }, 1, 1)
    end
    return answer
  end
end
