package redis

// luaReplicaBegin begins the script by which nodes synchronise the replicas of rules with consistency eventual. Package core's Replica has the node's part.
const luaReplicaBegin = `
-- Each key's part of the argument has, before its rule's: the units to charge to the window before the present one; and 1 if the cost is
-- that of a request, to be decided as usual, or 0 if it is what a node has admitted, to be charged whatever the limit says.
--
-- The reply has eight numbers for each key: those of a decision on a request of that cost; for how much longer the key is blocked by hand; and the state
-- that is left: see core's ReplicaState. At its end is the server's time.
local argument, place = ARGV[1], 1

local function charge(key)
local late, decides, position = unpack('<dd', argument, place)
local denied, one, two, three = false, 0, 0, 0
`

// luaReplicaDecide decides or charges, and sets the state that is left.
func luaReplicaDecide(a *algorithm) string {
	if a.replica.state == "" {
		return ""
	}
	return a.read + luaBlock + "else\n" + a.replica.late + "if decides == 0 then counts = 'whole' end\n" + a.decide + a.replica.state + "end\n"
}

// luaReplicaEnd ends the function charge, and calls it for each key.
const luaReplicaEnd = `
place = position
if value and (cost > 0 or late > 0) then
` + luaKeep + `
elseif stays then
` + luaStay + `
end
if not ok then remaining = -1 - remaining end
return remaining, wait, reset, more, math.max(left, 0), one, two, three
end
local reply, n = {}, #KEYS
for i = 1, n do
	local numbers = {charge(KEYS[i])}
	if type(numbers[1]) == 'table' then return numbers[1] end -- such a key comes alone
	for j = 1, 8 do reply[8 * i - 8 + j] = numbers[j] end
end
reply[8 * n + 1] = real
return reply
`

const luaStateOfFixedWindow = "one, two = from, count\n"

// luaLateOfSlidingWindowCounter charges units to the window before the present one.
const luaLateOfSlidingWindowCounter = `
if late > 0 then
	local begins, start, previous, current = now - now % P, 0, 0, 0
	if v and #v == 15 then start, previous, current = unpack('<I7I4I4', v) end
	if start == begins then
		previous = math.min(previous + late, 4294967295)
	elseif start < begins then
		if start < begins - P then current = 0 end
		start, current = begins - P, math.min(current + late, 4294967295)
	end
	v = pack('<I7I4I4', start, previous, current)
end
`

const luaStateOfSlidingWindowCounter = "one, two, three = from, previous, current\n"

const luaStateOfBucket = "one, two, three = at, used, frac\n"

const luaStateOfLog = `
do
	one = size + added - dead + held
	local over = math.max(one - R, 0)
	if over < size + added - dead then two = expiry(dead + over) elseif held > 0 then two = heldUntil - now end
end
`
