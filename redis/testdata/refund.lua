-- weir: refund

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

-- Gives back what one key was charged, where a later call of the same request was denied: ARGV[1] is the rule's argument, ARGV[2] the time
-- of the charge. What may no longer be there is not given back: what a bucket has drained since, a window that has ended, a log's entries
-- that are not among the newest.
local key, argument, position = KEYS[1], ARGV[1], 1

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

-- A value of another type is overwritten, as if nothing were there. What else goes wrong ends the script: a rule that cannot read would admit
-- everything.
local v = pcall('GET', key)
if v and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GET', key) end

local charged = tonumber(ARGV[2])
if type(v) ~= 'string' then return {} end

if algorithm == 1 then -- token_bucket

local interval = Y == 1

	if #v ~= 17 then return {} end
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
	value = pack('<I7I4I6', at, used, frac)

elseif algorithm == 2 then -- leaky_bucket

local interval

	if #v ~= 17 then return {} end
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
	value = pack('<I7I4I6', at, used, frac)

elseif algorithm == 3 then -- fixed_window

	if #v ~= 11 then return {} end
	local start, count = unpack('<I7I4', v)
	if start > charged or count < cost then return {} end
	value = pack('<I7I4', start, count - cost)

elseif algorithm == 4 then -- sliding_window_log

	local newest, length = pack('<I4', (charged + (-charged) % X) / X % 4294967296), #v
	local first, charge = length - 4 * cost, string.rep(newest, cost)
	while first >= 11 and length - first <= 4 * cost + 4096 do
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
