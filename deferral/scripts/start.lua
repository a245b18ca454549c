local key, fence, id, lease, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if lost(key, fence) then return 'lost' end
if redis.call('LINDEX', queue(key), 0) ~= id then return 'gone' end
freeing()
count('attempts')
redis.call('HINCRBY', job(id), 'n', 1)
redis.call('HSET', job(id), 's', 'running')
redis.call('ZADD', P .. 'held', text(now + lease), key)
local began = tonumber(redis.call('HGET', job(id), 'y') or '')
if not began or now - began >= most then
  began = now
  redis.call('HSET', job(id), 'y', text(began))
end
return text(began + most - now)
