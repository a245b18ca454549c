//go:build gc && race
// +build gc,race

package core

func init() {
	underRace = true
}
