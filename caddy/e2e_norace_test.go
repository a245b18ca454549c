//go:build !race

package ratelimit_test

const raceDetector = false
