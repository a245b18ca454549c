local most, lease = tonumber(ARGV[1]), tonumber(ARGV[2])
freeing()
sweep(tonumber(ARGV[3]), tonumber(ARGV[4]))
for _, key in ipairs(redis.call('ZRANGEBYSCORE', P .. 'held', '-inf', text(now), 'LIMIT', 0, 100)) do
  local id = redis.call('LINDEX', queue(key), 0)
  if id then
    redis.call('ZADD', P .. 'due', redis.call('ZSCORE', P .. 'held', key), key)
    if redis.call('HGET', job(id), 's') == 'running' then
      redis.call('HSET', job(id), 's', 'waiting')
      redis.call('HDEL', job(id), 'y')
      count('retaken')
    end
  end
  redis.call('ZREM', P .. 'held', key)
  redis.call('HDEL', P .. 'fences', key)
end
local claimed = {}
if most > 0 then
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', text(now), 'LIMIT', 0, most)) do
    local id = redis.call('LINDEX', queue(key), 0)
    if id then
      local fence = redis.call('HINCRBY', P .. 'sums', 'fence', 1)
      redis.call('ZADD', P .. 'held', text(now + lease), key)
      redis.call('HSET', P .. 'fences', key, fence)
      local j = redis.call('HMGET', job(id), 'b', 'n', 't')
      claimed[#claimed + 1] = {id, key, text(fence), j[1] or '', j[2] or '0', j[3] or '0'}
    end
    redis.call('ZREM', P .. 'due', key)
  end
end
local turn = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or '0'
local ends = redis.call('ZRANGE', P .. 'held', 0, 0, 'WITHSCORES')[2] or '0'
local oldest = redis.call('ZRANGE', P .. 'open', 0, 0, 'WITHSCORES')[2] or '0'
return {text(now), text(tonumber(turn)), text(tonumber(ends)), redis.call('ZCARD', P .. 'open'), text(tonumber(oldest)), redis.call('ZCARD', P .. 'dead'),
  redis.call('HMGET', P .. 'sums', 'bytes', 'accepted', 'done', 'died', 'attempts', 'retaken', 'cancelled', 'drain'), claimed,
  redis.call('ZCARD', P .. 'held')}
