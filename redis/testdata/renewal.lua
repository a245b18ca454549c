-- weir: renewal

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

-- ours runs a command on a set or list. If the key has another type, it first deletes the key. Scripts use it wherever they may be the first
-- to use the key.
local function ours(command, key, ...)
	local v = pcall(command, key, ...)
	if type(v) == 'table' and v.err then
		if not string.find(v.err, 'WRONGTYPE', 1, true) then error("of the '" .. command .. "' command: " .. v.err) end
		call('DEL', key)
		v = call(command, key, ...)
	end
	return v
end

local until_, made = format('%.0f', now + ARGV[1]), 0
for i, key in ipairs(KEYS) do
	local members = ARGV[i + 1]
	call('PEXPIRE', key, format('%d', ARGV[1] / 1000 + 1000)) -- comes first: without permission for it the members would stay forever
	for from = 1, #members, 16 do
		made = made + ours('ZADD', key, until_, string.sub(members, from, from + 15))
	end
	call('PEXPIRE', key, format('%d', ARGV[1] / 1000 + 1000))
end
return {made, 0}
