if ARGV[1] == '1' then redis.call('HSET', P .. 'sums', 'drain', 1) else redis.call('HDEL', P .. 'sums', 'drain') end
return 'ok'
