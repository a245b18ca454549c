-- Decides on all checks of a request, as core/memory's decideWithAccounts does. The reply has five numbers for each check: the four of the other
-- scripts, and bits (1: let through by tolerance; 2: something is reserved under the ticket; 4: the key is blocked until the end of the wait;
-- 8: from now on, for an offence).

--#part
--#put accounts

local rejecting, delays, depart = 0, false, real
for i = 1, n do
	local c = checks[i]
	weigh(c)
	if redirected then return {real} end
	delays = delays or c.delays and c.shadow == 0
	if c.shadow == 0 then
		if not c.ok then rejecting = rejecting + 1 elseif c.depart > depart then depart = c.depart end
	end
end
if rejecting > 0 or not delays then depart = real end
local reply = {}
for i = 1, n do
	local c, others = checks[i], rejecting
	if c.candidate and i > 1 and checks[i - 1].shadow == 0 and not checks[i - 1].ok then others = others - 1 end
	if not c.ok then
		if c.peek == 0 then reject(c) end
	elseif others > 0 then
		c.soft = false
		standWithout(c)
	elseif c.peek == 0 then
		if c.delays and c.shadow == 1 then admit(c, c.depart) else admit(c, depart) end -- a shadow as if the request waited for it alone
	end
	if redirected then return {real} end
	save(c)
	local place = 5 * i
	if c.soft then c.flags = c.flags + 1 end
	if not c.ok then c.remaining = -1 - c.remaining end
	reply[place - 4], reply[place - 3], reply[place - 2], reply[place - 1], reply[place] = c.remaining, c.wait, c.reset, c.more, c.flags
end
if ARGV[2] and ARGV[2] ~= '' then reply[5 * n + 1] = real end
return reply
--#end
