-- Ends reservations. The arguments are those of renewal.lua.

--#part
--#put decision.begin
--#put accounts.ours

for i, key in ipairs(KEYS) do
	for from = 1, #ARGV[i + 1], 16 do ours('ZREM', key, string.sub(ARGV[i + 1], from, from + 15)) end
end
return {0, 0}
--#end
