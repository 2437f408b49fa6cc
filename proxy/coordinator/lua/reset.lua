-- Empty a shard in which a script stopped halfway, so that all records of the journal can be applied again. Only a view of a journal
-- runs it. A shard that is whole is left as it is.
--
-- ARGV[2]  8 random bytes: what the shard has answered so far does not count any more, so these become part of the names of keys

if meta[3] then
  call('UNLINK', meta_key, logs_key, rows_key, prefix .. 'packed', prefix .. 'compacted', prefix .. 'raised', prefix .. 'producers',
    prefix .. 'producer_ids', prefix .. 'segments', prefix .. 'garbage', prefix .. 'tombstones', prefix .. 'dirty', prefix .. 'answered',
    transactions_key, open_key, aborted_key, shadows_key, followed_key)
  call('HSET', meta_key, 'pass', ARGV[2])
end
return reply({})
