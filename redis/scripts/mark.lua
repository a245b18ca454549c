-- Writes this node's mark, unless there is one of another node with other numbers: see comparison. It returns the numbers of the mark that is
-- there then. ARGV has this node's mark, how long it lasts in milliseconds, and the node.

--#part

local call = redis.call
local mark = redis.pcall('GET', KEYS[1])
local ipv4, ipv6, node
if type(mark) == 'string' then ipv4, ipv6, node = string.match(mark, '^(%d+) (%d+) (%x+)$') end
local own4, own6 = string.match(ARGV[1], '^(%d+) (%d+) ')
if not node or node == ARGV[3] or ipv4 == own4 and ipv6 == own6 then
	ipv4, ipv6 = own4, own6
	call('PSETEX', KEYS[1], ARGV[2], ARGV[1])
end
return {tonumber(ipv4), tonumber(ipv6)}
--#end
