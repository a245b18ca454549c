-- weir: refund

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

-- Gives back a charge to one key, after a later call of the same request has rejected it. ARGV[1] is the rule's argument, ARGV[2] the time
-- of the charge. Units that may be gone by now are not given back: those that a bucket has drained since, those of a window that has ended,
-- and a log's entries that are not among the newest.
local key, argument, position = KEYS[1], ARGV[1], 1

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

-- A value of another type counts as none, and is overwritten. Any other error ends the script: a rule that cannot read would admit everything.
local v = pcall('GET', key)
if v and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GET', key) end

local charged = tonumber(ARGV[2])
if type(v) ~= 'string' then return {} end

if algorithm == 1 then -- token_bucket

local interval = Y == 1

	if #v ~= 17 and #v ~= 36 then return {} end
	local at, used, frac = unpack('<I7I4I6', v)
	local drained, rest = 0, 0
	if interval then
		drained = ((now - now % P) - (charged - charged % P)) / P * R
	elseif now > charged then
		drained, rest = divide(now - charged, R, P)
	end
	if drained >= cost then return {} end
	used, frac = used - cost + drained, frac + rest
	if frac >= P then used, frac = used + 1, frac - P end
	if used < 0 then used, frac = 0, 0 end
	value = pack('<I7I4I6', at, used, frac) .. string.sub(v, 18)

elseif algorithm == 2 then -- leaky_bucket

local interval

	if #v ~= 17 and #v ~= 36 then return {} end
	local at, used, frac = unpack('<I7I4I6', v)
	local drained, rest = 0, 0
	if interval then
		drained = ((now - now % P) - (charged - charged % P)) / P * R
	elseif now > charged then
		drained, rest = divide(now - charged, R, P)
	end
	if drained >= cost then return {} end
	used, frac = used - cost + drained, frac + rest
	if frac >= P then used, frac = used + 1, frac - P end
	if used < 0 then used, frac = 0, 0 end
	value = pack('<I7I4I6', at, used, frac) .. string.sub(v, 18)

elseif algorithm == 3 then -- fixed_window

	if #v ~= 11 then return {} end
	local start, count = unpack('<I7I4', v)
	if start > charged or count < cost then return {} end
	value = pack('<I7I4', start, count - cost)

elseif algorithm == 4 then -- sliding_window_log

	local newest, length = pack('<I4', (charged + (-charged) % X) / X % 4294967296), #v
	local first, charge, head = length - 4 * cost, string.rep(newest, cost), length % 4 == 2 and 30 or 11
	while first >= head and length - first <= 4 * cost + 4096 do
		if string.sub(v, first + 1, first + 4 * cost) == charge then
			value = string.sub(v, 1, first) .. string.sub(v, first + 4 * cost + 1)
			break
		end
		first = first - 4
	end

elseif algorithm == 5 then -- sliding_window_counter

	if #v ~= 15 then return {} end
	local start, previous, current = unpack('<I7I4I4', v)
	if start <= charged and current >= cost then
		current = current - cost
	elseif start > charged and start - charged <= P and previous >= cost then
		previous = previous - cost
	end
	value = pack('<I7I4I4', start, previous, current)

else
	error('no algorithm ' .. algorithm)
end

if value then call('SET', key, value, 'KEEPTTL') end
return {}
