-- Makes reservations last for ARGV[1] microseconds from now. For each key, ARGV has its members as one string. A reservation that has gone,
-- because its node stood still for longer than the lease, or Redis has lost it, is made again. The reply says how many were.

--#part
--#put decision.begin
--#put accounts.ours

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
--#end
