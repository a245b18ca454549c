-- Ends a request's reservation, as core/memory's settle does. ARGV[2] is how many units to charge.

--#part
--#put accounts
--#put accounts.check

if c.inflight or c.count then
	if ARGV[2] ~= '0' then -- comes first: if it fails, the reservation counts until its lease ends
		evaluate(c, real, tonumber(ARGV[2]), false, 'whole')
		if redirected then return {real} end
		keep(c)
	end
	ours('ZREM', heldUnder(c))
else
	local line = ours('LRANGE', c.line, -1000, -1)
	for i = #line, 1, -1 do
		if string.sub(line[i], 1, 8) == c.ticket then
			local tail, length = unpack('<I7I4', line[i], 16)
			local before, after = string.sub(line[i], 27, 26 + length), string.sub(line[i], 27 + length)
			if i == #line then
				call('RPOP', c.line)
				c.tail = tail
				if c.isLog or read('GET', c.key) ~= after then
					-- nothing to restore: a log's charges are pending; and if the key was charged since, the place in the queue is lost
				elseif length > 0 then
					call('SET', c.key, before, 'KEEPTTL')
				else
					call('DEL', c.key)
				end
			else -- its place in the queue passes unused, unless those behind it leave, too
				local behind = line[i + 1]
				local skipped = unpack('<I4', behind, 23)
				call('LSET', c.line, i - #line, string.sub(behind, 1, 15) .. pack('<I7I4', tail, length) .. before .. string.sub(behind, 27 + skipped))
				call('LREM', c.line, -1, line[i])
			end
			c.dirty = true
			break
		end
	end
	if ours('ZREM', c.pending, c.ticket .. pack('<d', c.cost)) == 1 then c.units, c.dirty = c.units - c.cost, true end
end
save(c)
return {0, 0}
--#end
