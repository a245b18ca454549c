local from, most = ARGV[1], tonumber(ARGV[2])
local fresh, gone = {}, {}
local found = redis.call('ZRANGE', P .. 'open', from, '+inf', 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
for i = 1, #found, 2 do fresh[#fresh + 1] = redis.call('HGET', job(found[i]), 'q') or '' end
for i = 3, #ARGV do
  if redis.call('EXISTS', queue(ARGV[i])) == 0 then gone[#gone + 1] = ARGV[i] end
end
return {fresh, text(tonumber(found[#found] or 0)), gone}
