package advice

// newest is the serial of the newest advice. It is forgotten when all advice so far is over: so an advisor whose serials once were too high is silent for
// no longer than that.
type newest struct {
	serial int64
	until  int64 // microseconds since the epoch
}

// longestAdvice is how long after it came advice can last, in microseconds.
const longestAdvice = int64((MaxValid + MaxAhead) / 1000)

// at returns the serial that counts at a time; 0: none.
func (n *newest) at(now int64) int64 {
	if now >= n.until || n.until-now > longestAdvice { // the second: the clock has been set back
		return 0
	}
	return n.serial
}

// take notes advice that lasts until then.
func (n *newest) take(serial, until, now int64) {
	if n.at(now) == 0 || until > n.until {
		n.until = until
	}
	n.serial = serial
}
