local P = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function text(n) return string.format('%.0f', n + 0) end -- of -0, too, it is 0

local function job(id) return P .. 'job:' .. id end

local function queue(key) return P .. 'queue:' .. key end

local function grow(by) redis.call('HINCRBY', P .. 'sums', 'bytes', text(by)) end

local function freeing() redis.call('ZREM', P .. 'dead', '') end

local function count(what) redis.call('HINCRBY', P .. 'sums', what, 1) end

-- forget removes what is left of a job that is in no queue.
local function forget(id)
  local had = redis.call('HMGET', job(id), 'z', 'o')
  grow(-(tonumber(had[1]) or 0))
  if had[2] and redis.call('GET', P .. 'once:' .. had[2]) == id then redis.call('DEL', P .. 'once:' .. had[2]) end
  redis.call('DEL', job(id))
  for _, set in ipairs({'unconfirmed', 'open', 'results', 'ended', 'dead'}) do redis.call('ZREM', P .. set, id) end
end

-- drop removes the result of a job.
local function drop(id)
  local size = redis.call('HSTRLEN', job(id), 'r')
  grow(-size)
  if size > 0 then
    redis.call('HINCRBY', job(id), 'z', text(-size))
    redis.call('HDEL', job(id), 'r')
  end
  redis.call('ZREM', P .. 'results', id)
end

-- sweep removes some of what has been kept long enough.
local function sweep(keep, keepDead)
  local function each(set, last, remove)
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. set, '-inf', text(last), 'LIMIT', 0, 10)) do remove(id) end
  end
  each('results', now - keep, drop)
  each('ended', now - 2 * keep, forget)
  each('dead', now - keepDead, forget)
  each('unconfirmed', now - 86400000000, forget)
end

-- room makes room for bytes, at the expense of old results, and reports whether there is room.
local function room(bytes, most)
  for _ = 1, 100 do
    if (tonumber(redis.call('HGET', P .. 'sums', 'bytes')) or 0) + bytes <= most then return true end
    local id = redis.call('ZRANGE', P .. 'results', 0, 0)[1]
    if id then
      drop(id)
    else
      id = redis.call('ZRANGE', P .. 'ended', 0, 0)[1]
      if not id then return false end
      forget(id)
    end
  end
  return false
end

-- touch writes what is there: so WAIT, which follows the script, waits until replicas have all there was before.
local function touch(id, key)
  freeing()
  redis.call('HSET', job(id), 'q', key)
end

-- line puts a key into the order of turns, unless a worker has it.
local function line(key, turn)
  if not redis.call('ZSCORE', P .. 'held', key) then redis.call('ZADD', P .. 'due', text(turn), key) end
end

-- unhand ends the claim of a key, whose next turn comes after a wait.
local function unhand(key, wait)
  if redis.call('EXISTS', queue(key)) == 1 then redis.call('ZADD', P .. 'due', text(now + wait), key) end
  redis.call('ZREM', P .. 'held', key)
  redis.call('HDEL', P .. 'fences', key)
end

local function lost(key, fence) return redis.call('HGET', P .. 'fences', key) ~= fence end
