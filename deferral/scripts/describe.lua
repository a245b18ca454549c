local function describe(id, more)
  local had = redis.call('HMGET', job(id), 's', 'q', 't', 'n', 'e', 'c', 'w', 'a', 'f', 'z')
  if not had[1] then return false end
  local position, due = -1, '0'
  if had[1] == 'waiting' or had[1] == 'running' then
    position = redis.call('LPOS', queue(had[2]), id) or -1
    due = redis.call('ZSCORE', P .. 'due', had[2]) or '0'
  end
  local described = {id, position, text(tonumber(due)), redis.call('HEXISTS', job(id), 'r')}
  for i = 1, 10 do described[#described + 1] = had[i] or '' end
  described[#described + 1] = more and redis.call('HGET', job(id), more) or ''
  return described
end
