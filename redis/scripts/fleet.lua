-- Agrees on a document: see Agree. It replies with: the time; whether the node leads; serial, time of effect and length of the document; where
-- the part begins that follows; the part, in numbers of six bytes each. There is a part only where the node does not have the document.

--#part
local call, tonumber, format, floor = redis.call, tonumber, string.format, math.floor
local key, node, lease, known, offset = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local got = call('HMGET', key, 'holder', 'until', 'serial', 'effective', 'expires')
for i = 2, 5 do got[i] = tonumber(got[i] or 0) or 0 end
local till, serial, effective, expires = got[2], got[3], got[4], got[5]
-- A lease or a document that lasts longer than any is of before the clock has stepped back.
if expires <= now or expires > now + 9e10 then serial, effective = 0, 0 end
local leads = got[1] == node or till <= now or till > now + lease
if leads then
	call('HSET', key, 'holder', node, 'until', format('%.0f', now + lease))
	if tonumber(ARGV[5]) > serial then
		serial, effective = tonumber(ARGV[5]), now + tonumber(ARGV[7])
		local keep = math.max(tonumber(ARGV[8]), lease / 500)
		call('HSET', key, 'serial', ARGV[5], 'effective', format('%.0f', effective), 'document', ARGV[6], 'expires', format('%.0f', now + 1000 * keep))
		call('PEXPIRE', key, format('%.0f', keep))
	elseif call('PTTL', key) < lease / 1000 then
		call('PEXPIRE', key, format('%.0f', lease / 500))
	end
end
local reply = {now, leads and 1 or 0, serial, effective, 0, 0}
if serial > known then
	local document = call('HGET', key, 'document') or ''
	if offset >= #document then offset = 0 end
	reply[5], reply[6] = #document, offset
	for at = offset + 1, math.min(#document, offset + 6000), 6 do
		local a, b, c, d, e, f = string.byte(document, at, at + 5)
		reply[#reply + 1] = a + 256 * ((b or 0) + 256 * ((c or 0) + 256 * ((d or 0) + 256 * ((e or 0) + 256 * (f or 0)))))
	end
end
return reply
--#end
