// Package protocol reads what the experiment's protocol has open: the entries "open" of hypotheses.toml, which says what they mean.
package protocol

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/BurntSushi/toml"
)

// Open is a set of combinations that are to be played.
type Open struct {
	Tier       string // "virtual", "real" or "windows"
	Situation  string
	Algorithms []string
	Policies   []string // the arms
	First      uint64   // seed, which is the pair's number
	Pairs      int
}

// Read returns the entries of a tier, given the project's folder.
func Read(checkout, tier string) ([]Open, error) {
	name := filepath.Join(checkout, "experiment", "hypotheses.toml")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var of struct{ Open []Open }
	if err := toml.Unmarshal(text, &of); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var list []Open
	for _, o := range of.Open {
		if o.Tier == tier {
			list = append(list, o)
		}
	}
	return list, nil
}
