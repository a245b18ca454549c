-- As several.lua, but replies with a line, as one_line.lua does: the numbers of all keys, and if all rules allow the request at once, the last key.

--#part
--#put several.decide

local text, plain = '', true
for i = 1, 4 * n, 4 do plain = plain and reply[i] >= 0 and reply[i + 1] == 0 end
for i = 1, 4 * n, 4 do
	local reset, more = reply[i + 2], reply[i + 3]
	text = text .. format('%d %d %d %d ', reply[i], reply[i + 1], reset, more)
	if plain then
		text = text .. format('%d %d ', (reset + (-reset) % 1000000) / 1000000, (more + (-more) % 1000000) / 1000000)
	end
end
if plain then return {ok = text .. KEYS[n]} end
return {ok = string.sub(text, 1, -2)}
--#end
