local id, key, once, fingerprint = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local jobs, ofKey, wait, promised = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1'
local other = once ~= '' and redis.call('GET', P .. 'once:' .. once)
if other and other ~= id then
  local its = redis.call('HGET', job(other), 'f')
  if its then
    freeing()
    if redis.call('EXISTS', job(id)) == 1 then forget(id) end
    touch(other, redis.call('HGET', job(other), 'q'))
    return {'once', other, its}
  end
end
local state = redis.call('HGET', job(id), 's')
if not state then return {'none'} end
touch(id, key)
if state == 'unconfirmed' then
  if not promised then
    local full = redis.call('HGET', job(id), 'w')
    if not full then
      if redis.call('HEXISTS', P .. 'sums', 'drain') == 1 then
        full = 'drain'
      elseif redis.call('ZCARD', P .. 'open') >= jobs then
        full = 'jobs'
      elseif redis.call('LLEN', queue(key)) >= ofKey then
        full = 'key'
      end
    end
    if full then
      redis.call('HSET', job(id), 'w', full)
      return {'full', full}
    end
  end
  count('accepted')
  redis.call('HSET', job(id), 's', 'waiting', 't', text(now), 'o', once, 'f', fingerprint, 'w', '')
  if once ~= '' then redis.call('SET', P .. 'once:' .. once, id) end
  redis.call('ZREM', P .. 'unconfirmed', id)
  redis.call('ZADD', P .. 'open', text(now), id)
  if redis.call('RPUSH', queue(key), id) == 1 then line(key, now + wait) end
end
return {'stored', id, (redis.call('LPOS', queue(key), id, 'RANK', -1) or -1) + 1, text(now), redis.call('ZSCORE', P .. 'due', key) or text(now)}
