-- Does nothing: see runMoving.

--#part
return {0, 0}
--#end
