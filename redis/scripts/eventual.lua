-- By this script nodes tell each other what they have admitted under rules with consistency eventual: see eventually. Package usage has what they tell.
--
-- Each node has a log of documents, to which it appends, and from which others read what follows their last reading. An index has a record of each node:
-- its name, of 16 bytes, and as doubles the generation of its log, which is a new one when the node writes it afresh; the length of the log; and when it
-- is forgotten, in milliseconds.

--#part
local call, tonumber, floor, sub = redis.call, tonumber, math.floor, string.sub
local pack, unpack = struct.pack, struct.unpack

-- The keys are the index, the node's own log, and logs to read. The arguments are the node's name; the generation of its log; the length that it should
-- have; 1 if it begins afresh; a document to append, or ''; for how many milliseconds the log is kept; how many bytes the reply may have; and for each log
-- to read, the node's name, the generation and where to begin.
local name, generation, length, afresh, document, keep, most =
	ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local index, records, of, own, longest = call('GET', KEYS[1]) or '', {}, {}, nil, keep
for at = 1, #index - 39, 40 do
	local other, gen, size, ends = sub(index, at, at + 15), unpack('<ddd', index, at + 16)
	if other == name then
		own = sub(index, at, at + 39)
	elseif ends > now then
		records[#records + 1] = sub(index, at, at + 39)
		of[other] = gen
		longest = math.max(longest, ends - now)
	end
end
local whole = 1
if afresh then
	call('PSETEX', KEYS[2], keep, document)
	length = #document
elseif length > 0 and call('STRLEN', KEYS[2]) ~= length then
	whole = 0 -- Redis has lost what the node has told: it tells all of it again
elseif document ~= '' then
	length = call('APPEND', KEYS[2], document)
	call('PEXPIRE', KEYS[2], keep)
end
if whole == 1 and length > 0 and (document ~= '' or not own) then
	records[#records + 1] = name .. pack('<ddd', generation, length, now + keep)
	index = table.concat(records)
	call('PSETEX', KEYS[1], longest, index)
end
local reply = {whole .. ' ' .. string.format('%.0f', time[1] * 1000000 + time[2]), index}
for i = 3, #KEYS do
	local at = 8 + 3 * (i - 3)
	local part, from = '', tonumber(ARGV[at + 2])
	if most > 0 then
		if of[ARGV[at]] ~= tonumber(ARGV[at + 1]) then from = 0 end
		part = call('GETRANGE', KEYS[i], from, from + most - 1)
		most = most - #part
	end
	reply[i] = part
end
return reply
--#end
