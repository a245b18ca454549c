-- What all decisions share, under one rule or several.

--#part begin

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
--#end

-- Reads a rule's part of the argument: see appendArgument.
--#part rule

-- A rule's part of the argument begins at position.
--
-- cost: the request's cost.
-- R, P: the limit's requests and period.
-- X, Y: the algorithm's other numbers. If X is 0 and Y is 1, windows of the calendar follow.
-- counts: charge a rejected request too, up to the limit; if 'whole', charge the request whatever the limit says, as core's charge does.
-- owes: windows that follow are charged with what does not fit into one.
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
local owes = counts == 2
counts = counts == 1 and peek == 0
local ok, remaining, wait, reset, more, left, slack, value, header, stays, redirected = false, 0, 0, 0, 0, 0, P
--#end

-- Keeps value under key until the reset.
--#part keep
-- After the reset the value makes no difference. (One millisecond more is for servers that count expiries from the script's start.)
local life = format('%d', (reset + (-reset) % 1000) / 1000 + 1)
if header then
	call('SETRANGE', key, 0, header)
	call('APPEND', key, value)
	call('PEXPIRE', key, life)
else
	call('PSETEX', key, life, value)
end
--#end

-- Makes a key last until the reset, unless it lasts longer: that of a bucket that rejects, until the reset in the reply.
--#part stay
-- If a faster limit has charged the bucket, its key would expire earlier. (Redis 6.2 does not know the option GT. Without the right to PTTL the
-- key expires there as it would have.)
local life = (reset + (-reset) % 1000) / 1000 + 1
if type(pcall('PEXPIRE', key, format('%d', life), 'GT')) == 'table' then
	local left = pcall('PTTL', key)
	if type(left) == 'number' and left >= 0 and left < life then pcall('PEXPIRE', key, format('%d', life)) end
end
--#end

-- core/rate's DecideBlocked. What reads the key comes before, and what happens to a key that is blocked follows.
--#part block

-- A key that is blocked by hand has 14 bytes in place of its state, a length that no state has: when the block began, and when it ends. The
-- key expires with it. If the clock has stepped back, the end steps back as far.
if v and #v == 14 then
	local from, till = unpack('<I7I7', v)
	if from > real then
		till = till - from + real
		call('PSETEX', key, format('%d', (till - real + (real - till) % 1000) / 1000 + 1), pack('<I7I7', real, till))
	end
	left, v = till - now, false
end
--#end

-- Reads a key and decides, for each algorithm.
--#part decide
--#put .read
--#put decision.block
if left > 0 then
	wait, reset = left, left
	if X == 0 and Y == 1 then position = position + 40 end -- skips the calendar's windows
--#put .most
else
--#put .decide
end
--#end
