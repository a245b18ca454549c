local key, once, jobs, ofKey = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
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
return {waiting, other, its, full}
