package advice

// isBucket reports whether limits with an algorithm have a burst.
func isBucket(algorithm string) bool {
	return algorithm == "token_bucket" || algorithm == "leaky_bucket"
}
