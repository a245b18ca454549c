package redis

// The parts that all decisions share, under one rule or several, and those that give their charges back.

const luaBegin = `
-- now and real are the server's time, in microseconds.
local pack, unpack, format = struct.pack, struct.unpack, string.format
local call, pcall = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local real = now

-- divide returns the quotient and the remainder of a·b divided by c, exactly, for whole numbers. If the product does not fit a double, it
-- divides six bits of a at a time, the highest first. For that b and c must be below 2⁴⁶.
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
-- A rule's part of the argument begins at position.
--
-- cost: the request's cost.
-- R, P: the limit's requests and period.
-- X, Y: the algorithm's other numbers. If X is 0 and Y is 1, windows of the calendar follow.
-- counts: charge a rejected request too, up to the limit; if 'whole', charge the request whatever the limit says, as core's charge does.
-- shadow: the rule rejects no request.
-- peek: keep nothing.
-- denied: another rule rejects the request, so do not charge one that this rule would admit.
-- slack: how far a key's time may be ahead of the clock; if it is further ahead, the clock has stepped back.
--
-- The algorithm sets ok, remaining, wait, reset and more, and these:
--
-- value: the value to keep until the reset; with a header, what to append to a long log.
-- stays: a bucket rejects, and its key must last until the reset.
-- redirected: the time lies in none of the calendar's windows.
local algorithm, counts, shadow, peek, cost, R, P, X, Y, position = unpack('<BBBBddddd', argument, position)
counts = counts == 1 and peek == 0
local ok, remaining, wait, reset, more, left, slack, value, header, stays, redirected = false, 0, 0, 0, 0, 0, P
`

// luaKeep keeps value under key until the reset.
const luaKeep = `-- After the reset the value makes no difference. (One millisecond more is for servers that count expiries from the script's start.)
local life = format('%d', (reset + (-reset) % 1000) / 1000 + 1)
if header then
	call('SETRANGE', key, 0, header)
	call('APPEND', key, value)
	call('PEXPIRE', key, life)
else
	call('PSETEX', key, life, value)
end`

// luaStay makes the key of a bucket that rejects last until the reset in the reply.
const luaStay = `-- If a faster limit has charged the bucket, its key would expire earlier. (Redis 6.2 does not know the option GT, and does nothing: there the
-- key expires when the fastest limit has refilled the bucket.)
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

// luaOneLineEnd replies with a line in place of an array, unless the call asks for the server's time. If the request is allowed at once, the
// line also has reset and more in seconds, rounded up, and the key: so that a client can put these words into its answer as they are, and knows
// that the reply is that of its call.
const luaOneLineEnd = `
if ARGV[2] then return {remaining, wait, reset, more, now} end
if ok and wait == 0 then
	local seconds, sooner = (reset + (-reset) % 1000000) / 1000000, (more + (-more) % 1000000) / 1000000
	return {ok = format('%d 0 %d %d %d %d %s', remaining, reset, more, seconds, sooner, key)}
end
return {ok = format('%d %d %d %d', remaining, wait, reset, more)}
`

// lineNumbers is how many numbers are in such a line: those of any reply, and two in seconds.
const lineNumbers = 6

const luaSeveralBegin = `
-- The first pass evaluates every rule as if all of them admitted the request. If an enforced rule does not, a second pass finds out what to
-- reply and to keep. Nothing is written before both are done.
local n, argument, denied, headers = #KEYS, ARGV[1]
local reply = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
for i = 4 * n + 1, 16 do reply[i] = nil end
local values = {false, false, false, false}
for pass = 1, 2 do
local rejects, next = false, 1
for i = 1, n do
local key, position = KEYS[i], next
`

// luaSeveralKeep ends the passes, and keeps what they have found.
const luaSeveralKeep = `
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
`

const luaSeveralEnd = luaSeveralKeep + `if ARGV[2] then reply[4 * n + 1] = now end
return reply
`

// luaSeveralLineEnd replies with a line, as luaOneLineEnd does: the numbers of all keys, and if all rules allow the request at once, the last key.
const luaSeveralLineEnd = luaSeveralKeep + `
local text, plain = '', true
for i = 1, 4 * n, 4 do plain = plain and reply[i] >= 0 and reply[i + 1] == 0 end
for i = 1, 4 * n, 4 do
	local reset, more = reply[i + 2], reply[i + 3]
	text = text .. format('%d %d %d %d ', reply[i], reply[i + 1], reset, more)
	if plain then
		text = text .. format('%d %d ', (reset + (-reset) % 1000000) / 1000000, (more + (-more) % 1000000) / 1000000)
	end
end
if plain then return {ok = text .. KEYS[n]} end
return {ok = string.sub(text, 1, -2)}
`

const luaRefundBegin = `
-- Gives back a charge to one key, after a later call of the same request has rejected it. ARGV[1] is the rule's argument, ARGV[2] the time
-- of the charge. Units that may be gone by now are not given back: those that a bucket has drained since, those of a window that has ended,
-- and a log's entries that are not among the newest.
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
