local key, fence, wait, why = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if lost(key, fence) then return 'lost' end
freeing()
local id = redis.call('LINDEX', queue(key), 0)
if id and redis.call('HGET', job(id), 's') == 'running' then
  redis.call('HSET', job(id), 's', 'waiting')
  if why == 'unused' then redis.call('HINCRBY', job(id), 'n', -1) end
  if why ~= 'failed' then redis.call('HDEL', job(id), 'y') end
end
unhand(key, wait)
return 'ok'
