local key, cancelled = ARGV[1], 0
freeing()
local list = redis.call('LRANGE', queue(key), -tonumber(ARGV[2]), -1)
for i = #list, 1, -1 do
  if redis.call('HGET', job(list[i]), 's') == 'waiting' then
    count('cancelled')
    redis.call('LREM', queue(key), -1, list[i])
    forget(list[i])
    cancelled = cancelled + 1
  end
end
if redis.call('EXISTS', queue(key)) == 0 then redis.call('ZREM', P .. 'due', key) end
return cancelled
