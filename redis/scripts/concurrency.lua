-- Requests in flight. They have no state but the reservations, which accounts.lua keeps.

--#part most
	if cost > 1000000000 then wait = -1 end
--#end

--#part evaluate
-- see weigh
--#end
