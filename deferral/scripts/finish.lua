local key, fence, id, state, status, reason, result = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local wait, most = tonumber(ARGV[8]), tonumber(ARGV[9])
if lost(key, fence) then return 'lost' end
if redis.call('LINDEX', queue(key), 0) ~= id then return 'gone' end
freeing()
redis.call('HSET', job(id), 's', state, 'e', text(now), 'c', status, 'w', reason)
local set = 'dead'
if state == 'done' then
  local size = redis.call('HSTRLEN', job(id), 'b')
  grow(-size)
  redis.call('HINCRBY', job(id), 'z', text(-size))
  redis.call('HDEL', job(id), 'b')
  set = 'ended'
end
count(state == 'done' and 'done' or 'died')
if #result > 0 and room(#result, most) then
  grow(#result)
  redis.call('HINCRBY', job(id), 'z', #result)
  redis.call('HSET', job(id), 'r', result)
  redis.call('ZADD', P .. 'results', text(now), id)
end
redis.call('LPOP', queue(key))
redis.call('ZADD', P .. set, text(now), id)
redis.call('ZREM', P .. 'open', id)
unhand(key, wait)
return 'ok'
