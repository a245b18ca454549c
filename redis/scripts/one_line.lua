-- As one.lua, but replies with a line in place of an array, unless the call asks for the server's time. If the request is allowed at once, the
-- line also has reset and more in seconds, rounded up, and the key: so that a client can put these words into its answer as they are, and knows
-- that the reply is that of its call.

--#part
--#put one.decide

if ARGV[2] then return {remaining, wait, reset, more, now} end
if ok and wait == 0 then
	local seconds, sooner = (reset + (-reset) % 1000000) / 1000000, (more + (-more) % 1000000) / 1000000
	return {ok = format('%d 0 %d %d %d %d %s', remaining, reset, more, seconds, sooner, key)}
end
return {ok = format('%d %d %d %d', remaining, wait, reset, more)}
--#end
