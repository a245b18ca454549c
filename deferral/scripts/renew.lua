if lost(ARGV[1], ARGV[2]) then return 'lost' end
freeing()
redis.call('ZADD', P .. 'held', text(now + tonumber(ARGV[3])), ARGV[1])
return 'ok'
