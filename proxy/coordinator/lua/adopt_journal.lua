-- Make this shard a view of a journal from now on. Nothing of fence.lua or journal.lua comes first: what they check belongs to the
-- order that the shard leaves. No proxy uses the store meanwhile (guard/journal_change.py).
--
-- ARGV[2]  identity of the journal (16 bytes); i64: position of the next record to apply; 8 random bytes, which become part of the
--          names of keys that expire: positions begin again, so replies that are kept by position must not be found

local identity, position, new_pass = parse('>c16i8c8', ARGV[2])
local view_life = JOURNAL_INCARNATION .. identity .. NO_FIGURES
if life ~= view_life then
  incarnation, life, sequence = JOURNAL_INCARNATION, view_life, position
  call('UNLINK', prefix .. 'answered', prefix .. 'dirty')
  call('HDEL', meta_key, 'lives', 'accepted', 'lost', 'settling', 'proved', 'snapshot')
  call('HSET', meta_key, 'state', packed_state(), 'pass', new_pass)
end
return 1
