package redis

// What decisions have in common, under one rule or several, and what gives their charges back.

const luaBegin = `
-- now, and real, is the server's time in microseconds.
local pack, unpack, format = struct.pack, struct.unpack, string.format
local call, pcall = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local real = now

-- divide returns a·b div c and the remainder, exactly, for whole numbers: where the product does not fit a double it takes six bits of a
-- at a time, the highest first, for which b and c must be below 2⁴⁶.
local function divide(a, b, c)
	local product = a * b
	if product < 9007199254740992 then
		local rest = product % c
		return (product - rest) / c, rest
	end
	local scale, quotient, rest = 1, 0, 0
	while scale * 64 <= a do scale = scale * 64 end
	while scale >= 1 do
		local low = a % scale
		local sum = rest * 64 + (a - low) / scale * b
		rest = sum % c
		quotient = quotient * 64 + (sum - rest) / c
		a, scale = low, scale / 64
	end
	return quotient, rest
end
`

// luaRule reads a rule's part of the argument: see appendArgument.
const luaRule = `
-- A rule's part of the argument begins at position. cost is what the request takes, R and P are the limit's requests and period, X and Y what
-- else its algorithm has: where X is 0 and Y is 1, windows of the calendar follow. counts: a rejected request is charged too, as far as it uses
-- the limit up; where it is 'whole' the request is charged whatever the limit says, as core's charge does. shadow: the rule vetoes nothing.
-- peek: nothing is kept. denied: another rule rejects the request, so that one that this rule would admit is not charged. slack is how far a key's
-- time may be ahead of the clock's without being taken for a step back of the clock.
--
-- The algorithm sets ok, remaining, wait, reset and more, and in value what is to be kept until the reset; a value with a header is added to a
-- long log. stays: the key of a bucket that rejects is to last. redirected: the time lies in none of the calendar's windows.
local algorithm, counts, shadow, peek, cost, R, P, X, Y, position = unpack('<BBBBddddd', argument, position)
counts = counts == 1 and peek == 0
local ok, remaining, wait, reset, more, left, slack, value, header, stays, redirected = false, 0, 0, 0, 0, 0, P
`

// luaKeep keeps value under key until the reset.
const luaKeep = `-- The value makes no difference any more after the reset. (A millisecond is added for a server whose expiries count from the script's start.)
local life = format('%d', (reset + (-reset) % 1000) / 1000 + 1)
if header then
	call('SETRANGE', key, 0, header)
	call('APPEND', key, value)
	call('PEXPIRE', key, life)
else
	call('PSETEX', key, life, value)
end`

// luaStay has the key of a bucket that rejects last until what its client was told.
const luaStay = `-- Where a faster limit has charged the bucket, it was to expire before. (Redis 6.2 does not know the option, and does nothing then: what the
-- fastest of the limits has refilled is forgotten.)
pcall('PEXPIRE', key, format('%d', (reset + (-reset) % 1000) / 1000 + 1), 'GT')`

const luaOneBegin = `
local key, argument, position, denied = KEYS[1], ARGV[1], 1, false
`

const luaOneKeep = `
if value and peek == 0 then
` + luaKeep + `
elseif stays and peek == 0 then
` + luaStay + `
end
if not ok then remaining = -1 - remaining end
`

const luaOneEnd = `
return {remaining, wait, reset, more, ARGV[2] and now}
`

// luaOneLineEnd replies with a line in place of an array, but where the server's time is asked for.
const luaOneLineEnd = `
if ARGV[2] then return {remaining, wait, reset, more, now} end
return {ok = format('%d %d %d %d', remaining, wait, reset, more)}
`

const luaSeveralBegin = `
-- The first pass evaluates every rule as if all admitted. If an enforced one does not, a second pass finds out what is told and kept then.
-- Nothing is written before all is known.
local n, argument, denied, headers = #KEYS, ARGV[1]
local reply = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
for i = 4 * n + 1, 16 do reply[i] = nil end
local values = {false, false, false, false}
for pass = 1, 2 do
local rejects, next = false, 1
for i = 1, n do
local key, position = KEYS[i], next
`

const luaSeveralEnd = `
	next = position
	if value and peek == 0 then
		values[i] = value
		if header then
			headers = headers or {}
			headers[i] = header
		end
	else
		values[i] = stays and peek == 0
	end
	if not ok then
		remaining = -1 - remaining
		rejects = rejects or shadow == 0
	end
	local place = 4 * i
	reply[place - 3], reply[place - 2], reply[place - 1], reply[place] = remaining, wait, reset, more
end
if denied or not rejects then break end
denied = true
end
for i = 1, n do
	local value = values[i]
	if value then
		local key, header, reset = KEYS[i], headers and headers[i], reply[4 * i - 1]
		if value == true then
` + luaStay + `
		else
` + luaKeep + `
		end
	end
end
if ARGV[2] then reply[4 * n + 1] = now end
return reply
`

const luaRefundBegin = `
-- Gives back what one key was charged, where a later call of the same request was denied: ARGV[1] is the rule's argument, ARGV[2] the time
-- of the charge. What may no longer be there is not given back: what a bucket has drained since, a window that has ended, a log's entries
-- that are not among the newest.
local key, argument, position = KEYS[1], ARGV[1], 1
`

const luaRefund = `
local charged = tonumber(ARGV[2])
if type(v) ~= 'string' then return {} end
`

const luaRefundEnd = `
if value then call('SET', key, value, 'KEEPTTL') end
return {}
`
