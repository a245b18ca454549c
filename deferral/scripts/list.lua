local set, key, from, after, most, more = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local ids = {}
if key ~= '' then
  ids = redis.call('LRANGE', queue(key), from, from + most - 1)
else
  local found = redis.call('ZRANGE', P .. set, from, '+inf', 'BYSCORE', 'LIMIT', 0, most + 100, 'WITHSCORES')
  for i = 1, #found, 2 do
    if #ids < most and (tonumber(found[i + 1]) ~= tonumber(from) or found[i] > after) then ids[#ids + 1] = found[i] end
  end
end
local list = {}
for _, id in ipairs(ids) do
  local one = describe(id, more ~= '' and more)
  if one then list[#list + 1] = one end
end
return list
