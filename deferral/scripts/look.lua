local key, once, jobs, ofKey, age = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local other, its = '', ''
if once ~= '' then
  other = redis.call('GET', P .. 'once:' .. once) or ''
  its = other ~= '' and redis.call('HGET', job(other), 'f') or ''
  if its == '' then other = '' end
end
local waiting = redis.call('LLEN', queue(key))
local full = ''
if redis.call('HEXISTS', P .. 'sums', 'drain') == 1 then
  full = 'drain'
elseif redis.call('ZCARD', P .. 'open') >= jobs then
  full = 'jobs'
elseif waiting >= ofKey then
  full = 'key'
end
local doubtful = {}
for _, id in ipairs(redis.call('ZREVRANGEBYSCORE', P .. 'unconfirmed', text(now - age), '-inf', 'LIMIT', 0, 1000)) do
  if redis.call('HGET', job(id), 'q') == key then doubtful[#doubtful + 1] = id end
end
return {waiting, other, its, full, doubtful}
