local id, withdraw = ARGV[1], ARGV[2] == '1'
local had = redis.call('HMGET', job(id), 's', 'q')
if not had[1] then return 'none' end
if had[1] == 'running' or withdraw ~= (had[1] == 'unconfirmed') then return 'running' end
freeing()
if had[1] == 'waiting' then
  count('cancelled')
  redis.call('LREM', queue(had[2]), 1, id)
  if redis.call('EXISTS', queue(had[2])) == 0 then redis.call('ZREM', P .. 'due', had[2]) end
end
forget(id)
return had[1]
