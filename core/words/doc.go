// Package words checks how names, words and whole numbers are written in a configuration, and says what a misspelled one most likely
// means. Mistake is what is wrong in a configuration, as a value. It imports the standard library alone and keeps to the Go that the interpreter Yaegi can run.
package words
