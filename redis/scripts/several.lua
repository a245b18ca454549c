-- Decides on a request under several rules.

--#part decide
--#put decision.begin

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
--#put decision.rule
--#each decision.decide

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
--#put decision.stay
		else
--#put decision.keep
		end
	end
end
--#end

--#part
--#put several.decide
if ARGV[2] then reply[4 * n + 1] = now end
return reply
--#end
