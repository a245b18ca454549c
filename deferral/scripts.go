package deferral

import goredis "github.com/redis/go-redis/v9"

// The scripts get the queue's prefix as their only key, and make the names of the others from it: all of them are in its slot. A number
// becomes text by %.0f, since Lua writes large ones with an exponent.
//
// A server without memory refuses the first command of a script that may need some, and none that follow a write. So a script that stores a
// job begins with such a command before it changes anything: it is executed as a whole, or not at all. Scripts about jobs that are stored begin with
// freeing, a write that needs no memory: so jobs are done on a full server, too, which frees its memory.
const preamble = `
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
`

// script makes one of the scripts.
func script(source string) *goredis.Script { return goredis.NewScript(preamble + source) }

// enterScript stores a job that is in no line yet, so no worker takes it. It may be sent again, and then writes again, so that WAIT waits.
var enterScript = script(`
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
`)

// confirmScript puts a job that is stored at the end of its key's line, once. If there is no room it never does, unless that is promised: then room is
// no condition.
var confirmScript = script(`
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
`)

// lookScript tells what is known before a request is decided. It changes nothing.
var lookScript = script(`
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
`)

// claimScript takes back what dead nodes held, and claims keys whose turn has come.
var claimScript = script(`
local most, lease = tonumber(ARGV[1]), tonumber(ARGV[2])
freeing()
sweep(tonumber(ARGV[3]), tonumber(ARGV[4]))
for _, key in ipairs(redis.call('ZRANGEBYSCORE', P .. 'held', '-inf', text(now), 'LIMIT', 0, 100)) do
  local id = redis.call('LINDEX', queue(key), 0)
  if id then
    redis.call('ZADD', P .. 'due', redis.call('ZSCORE', P .. 'held', key), key)
    if redis.call('HGET', job(id), 's') == 'running' then
      redis.call('HSET', job(id), 's', 'waiting')
      redis.call('HDEL', job(id), 'y')
      count('retaken')
    end
  end
  redis.call('ZREM', P .. 'held', key)
  redis.call('HDEL', P .. 'fences', key)
end
local claimed = {}
if most > 0 then
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', text(now), 'LIMIT', 0, most)) do
    local id = redis.call('LINDEX', queue(key), 0)
    if id then
      local fence = redis.call('HINCRBY', P .. 'sums', 'fence', 1)
      redis.call('ZADD', P .. 'held', text(now + lease), key)
      redis.call('HSET', P .. 'fences', key, fence)
      local j = redis.call('HMGET', job(id), 'b', 'n', 't')
      claimed[#claimed + 1] = {id, key, text(fence), j[1] or '', j[2] or '0', j[3] or '0'}
    end
    redis.call('ZREM', P .. 'due', key)
  end
end
local turn = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or '0'
local ends = redis.call('ZRANGE', P .. 'held', 0, 0, 'WITHSCORES')[2] or '0'
local oldest = redis.call('ZRANGE', P .. 'open', 0, 0, 'WITHSCORES')[2] or '0'
return {text(now), text(tonumber(turn)), text(tonumber(ends)), redis.call('ZCARD', P .. 'open'), text(tonumber(oldest)), redis.call('ZCARD', P .. 'dead'),
  redis.call('HMGET', P .. 'sums', 'bytes', 'accepted', 'done', 'died', 'attempts', 'retaken', 'cancelled', 'drain'), claimed,
  redis.call('ZCARD', P .. 'held')}
`)

// startScript begins an attempt at a job. It returns how much is left of the time in which the job is tried, which begins with its first attempt. If nobody
// could try it for so long, the time begins afresh.
var startScript = script(`
local key, fence, id, lease, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if lost(key, fence) then return 'lost' end
if redis.call('LINDEX', queue(key), 0) ~= id then return 'gone' end
freeing()
count('attempts')
redis.call('HINCRBY', job(id), 'n', 1)
redis.call('HSET', job(id), 's', 'running')
redis.call('ZADD', P .. 'held', text(now + lease), key)
local began = tonumber(redis.call('HGET', job(id), 'y') or '')
if not began or now - began >= most then
  began = now
  redis.call('HSET', job(id), 'y', text(began))
end
return text(began + most - now)
`)

// renewScript renews the lease of a claim.
var renewScript = script(`
if lost(ARGV[1], ARGV[2]) then return 'lost' end
freeing()
redis.call('ZADD', P .. 'held', text(now + tonumber(ARGV[3])), ARGV[1])
return 'ok'
`)

// putBackScript ends a claim; the job waits for another turn. Unless its attempt has failed, the time in which it is tried begins afresh.
var putBackScript = script(`
local key, fence, wait, why = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if lost(key, fence) then return 'lost' end
freeing()
local id = redis.call('LINDEX', queue(key), 0)
if id and redis.call('HGET', job(id), 's') == 'running' then
  redis.call('HSET', job(id), 's', 'waiting')
  if why == 'unused' then redis.call('HINCRBY', job(id), 'n', -1) end
  if why ~= 'failed' then redis.call('HDEL', job(id), 'y') end
end
unhand(key, wait)
return 'ok'
`)

// finishScript records what became of a job, and ends the claim.
var finishScript = script(`
local key, fence, id, state, status, reason, result = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local wait, most = tonumber(ARGV[8]), tonumber(ARGV[9])
if lost(key, fence) then return 'lost' end
if redis.call('LINDEX', queue(key), 0) ~= id then return 'gone' end
freeing()
redis.call('HSET', job(id), 's', state, 'e', text(now), 'c', status, 'w', reason)
local set = 'dead'
if state == 'done' then
  local size = redis.call('HSTRLEN', job(id), 'b')
  grow(-size)
  redis.call('HINCRBY', job(id), 'z', text(-size))
  redis.call('HDEL', job(id), 'b')
  set = 'ended'
end
count(state == 'done' and 'done' or 'died')
if #result > 0 and room(#result, most) then
  grow(#result)
  redis.call('HINCRBY', job(id), 'z', #result)
  redis.call('HSET', job(id), 'r', result)
  redis.call('ZADD', P .. 'results', text(now), id)
end
redis.call('LPOP', queue(key))
redis.call('ZADD', P .. set, text(now), id)
redis.call('ZREM', P .. 'open', id)
unhand(key, wait)
return 'ok'
`)

// describe describes a job by the fields of its hash. See described.
const describe = `
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
`

// getScript describes a job, with the field of its hash that is asked for besides, if any.
var getScript = script(describe + `
return describe(ARGV[1], ARGV[2] ~= '' and ARGV[2])
`)

// listScript describes the jobs of a set in the order of time and then of ids, behind a time and an id; or those of a key's queue, from an
// index on. The set has at most 100 jobs of one microsecond.
var listScript = script(describe + `
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
`)

// cancelScript removes a job that does not run; or, to withdraw it, a job that is not in the line.
var cancelScript = script(`
local id, withdraw = ARGV[1], ARGV[2] == '1'
local had = redis.call('HMGET', job(id), 's', 'q')
if not had[1] then return 'none' end
if had[1] == 'running' or withdraw ~= (had[1] == 'unconfirmed') then return 'running' end
freeing()
if had[1] == 'waiting' then
  count('cancelled')
  redis.call('LREM', queue(had[2]), 1, id)
  if redis.call('EXISTS', queue(had[2])) == 0 then redis.call('ZREM', P .. 'due', had[2]) end
end
forget(id)
return had[1]
`)

// cancelKeyScript removes the jobs of a key that wait, at most so many, the last first. It returns how many there were.
var cancelKeyScript = script(`
local key, cancelled = ARGV[1], 0
freeing()
local list = redis.call('LRANGE', queue(key), -tonumber(ARGV[2]), -1)
for i = #list, 1, -1 do
  if redis.call('HGET', job(list[i]), 's') == 'waiting' then
    count('cancelled')
    redis.call('LREM', queue(key), -1, list[i])
    forget(list[i])
    cancelled = cancelled + 1
  end
end
if redis.call('EXISTS', queue(key)) == 0 then redis.call('ZREM', P .. 'due', key) end
return cancelled
`)

// purgeScript forgets jobs of a set that ended long ago, at most so many, the oldest first. It returns how many it has forgotten and how many
// there are besides. With a bound of 0 it changes nothing.
var purgeScript = script(`
local set, last, most = P .. ARGV[1], text(now - tonumber(ARGV[2])), tonumber(ARGV[3])
local purged = 0
if most > 0 then
  freeing()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', set, '-inf', last, 'LIMIT', 0, most)) do
    forget(id)
    purged = purged + 1
  end
end
return {purged, redis.call('ZCOUNT', set, '-inf', last)}
`)

// retryScript puts a dead letter at the end of its key's queue.
var retryScript = script(`
local id = ARGV[1]
local had = redis.call('HMGET', job(id), 's', 'q')
if not had[1] then return 'none' end
if had[1] ~= 'dead' then return had[1] end
drop(id)
redis.call('HSET', job(id), 's', 'waiting', 'n', 0, 'e', '', 'c', '', 'w', '')
redis.call('HDEL', job(id), 'y')
redis.call('ZADD', P .. 'open', text(now), id)
if redis.call('RPUSH', queue(had[2]), id) == 1 then line(had[2], now) end
redis.call('ZREM', P .. 'dead', id)
return 'ok'
`)

// drainScript ends or begins the acceptance of jobs.
var drainScript = script(`
if ARGV[1] == '1' then redis.call('HSET', P .. 'sums', 'drain', 1) else redis.call('HDEL', P .. 'sums', 'drain') end
return 'ok'
`)
