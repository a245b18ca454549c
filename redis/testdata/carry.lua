-- weir: carry

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

local places = {}
for i = 4, #ARGV, 3 do
	local list = places[ARGV[i]] or {}
	list[#list + 1] = {ARGV[i + 1], ARGV[i + 2] == '1'}
	places[ARGV[i]] = list
end

local function read(key)
	local v = pcall('GET', key)
	if type(v) == 'string' then return v end
	return ''
end

local function lifeUntil(at) return format('%d', (at - now) / 1000 + 1) end

-- block blocks a key by hand until then, unless it is for longer.
local function block(key, till)
	local v = read(key)
	if #v == 14 then
		local _, other = unpack('<I7I7', v)
		if other >= till then return 0 end
	end
	pcall('PSETEX', key, lifeUntil(till), pack('<I7I7', now, till))
	return 1
end

-- punish gives a key's account a penalty, and its offences.
local function punish(key, till, quiet, offences)
	local v = read(key)
	if #v ~= 52 and #v ~= 77 then
		pcall('PSETEX', key, lifeUntil(math.max(till, quiet)), pack('<I7I7I7I7I7I7I6I4', now, 0, 0, till, quiet, 0, 0, offences))
		return 1
	end
	local last, softUntil, softAgain, blockedUntil, quietUntil, tail, units, own = unpack('<I7I7I7I7I7I7I6I4', v)
	if blockedUntil >= till and quietUntil >= quiet then return 0 end
	till, quiet, offences = math.max(till, blockedUntil), math.max(quiet, quietUntil), math.max(offences, own)
	pcall('SET', key, pack('<I7I7I7I7I7I7I6I4', last, softUntil, softAgain, till, quiet, tail, units, offences) .. string.sub(v, 53), 'KEEPTTL')
	pcall('PEXPIRE', key, lifeUntil(math.max(till, quiet)), 'GT')
	return 1
end

local found = call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local blocked = 0
for _, name in ipairs(found[2]) do
	local close = string.find(name, '}:', 1, true)
	local ending = close and string.sub(name, close) or ''
	local account = string.sub(ending, -2) == ':a'
	local list = places[ending] or account and places[string.sub(ending, 1, -3)]
	if list then
		local v, client = read(name), string.sub(name, 1, close - 1)
		if account and not places[ending] then
			if #v == 52 or #v == 77 then
				local _, _, _, till, quiet, _, _, offences = unpack('<I7I7I7I7I7I7I6I4', v)
				for _, place in ipairs(list) do
					if place[2] and (till > now or quiet > now) then blocked = blocked + punish(client .. place[1] .. ':a', till, quiet, offences) end
				end
			end
		elseif #v == 14 then
			local _, till = unpack('<I7I7', v)
			for _, place in ipairs(list) do
				if till > now then blocked = blocked + block(client .. place[1], till) end
			end
		end
	end
end
return {tonumber(found[1]), blocked}
