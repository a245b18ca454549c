-- weir: nothing
return {0, 0}
