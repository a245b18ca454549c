local id = ARGV[1]
local had = redis.call('HMGET', job(id), 's', 'q')
if not had[1] then return 'none' end
if had[1] ~= 'dead' then return had[1] end
drop(id)
redis.call('HSET', job(id), 's', 'waiting', 'n', 0, 'e', '', 'c', '', 'w', '')
redis.call('HDEL', job(id), 'y')
redis.call('ZADD', P .. 'open', text(now), id)
if redis.call('RPUSH', queue(had[2]), id) == 1 then line(had[2], now) end
redis.call('ZREM', P .. 'dead', id)
return 'ok'
