-- Make this shard, a view of a journal, the order itself from now on. It has all records of the journal, and no proxy uses the store
-- meanwhile (guard/journal_change.py). All that the journal had counts as written in the life of this server, so that fence.lua
-- counts all of it if the store loses it.
--
-- ARGV[1]  has the incarnation to give it

if incarnation == JOURNAL_INCARNATION then
  incarnation, must_last = new_incarnation, written
  life = pack(LIFE, incarnation .. (server_here() or NO_SERVER), 0, 0, 0)
  call('UNLINK', prefix .. 'answered', prefix .. 'dirty')
  call('HDEL', meta_key, 'proved', 'snapshot')
  call('HSET', meta_key, 'state', packed_state(), 'lives', life)
end
return 1
