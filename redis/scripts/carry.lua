-- Goes through some of the server's keys, and blocks keys under other rules: see Carry. ARGV has the cursor of SCAN, the pattern of names, how
-- many keys to look at, and then triples of the end of a name, the end of the name that it has under the rule in its place, and 1 if that rule
-- has penalties. It returns the next cursor, 0 at the end, and how many keys it has blocked.
--
-- It is for the time when another limit has taken a rule's place. It declares no keys, since it does not know their names; but all are keys of
-- this server.

--#part
--#put decision.begin

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
	local reset = math.max(till, quiet) - now
--#put decision.stay
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
--#end
