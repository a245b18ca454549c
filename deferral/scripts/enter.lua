local id, key, request, access, most, size = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
sweep(tonumber(ARGV[7]), tonumber(ARGV[8]))
if redis.call('EXISTS', job(id)) == 1 then
  touch(id, key)
  return ''
end
if not room(size, most) then return 'bytes' end
grow(size)
redis.call('HSET', job(id), 'b', request, 'q', key, 's', 'unconfirmed', 't', text(now), 'n', 0, 'z', text(size), 'a', access)
redis.call('ZADD', P .. 'unconfirmed', text(now), id)
return ''
