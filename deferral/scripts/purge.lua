local set, last, most = P .. ARGV[1], text(now - tonumber(ARGV[2])), tonumber(ARGV[3])
local purged = 0
if most > 0 then
  freeing()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', set, '-inf', last, 'LIMIT', 0, most)) do
    forget(id)
    purged = purged + 1
  end
end
return {purged, redis.call('ZCOUNT', set, '-inf', last)}
