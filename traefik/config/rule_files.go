package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/proxyweir/weir/core/ruleset"
)

// IsYAML reports whether a file is in YAML, by its name.
func IsYAML(file string) bool {
	suffix := strings.ToLower(filepath.Ext(file))
	return suffix == ".yaml" || suffix == ".yml"
}

// ParseFile is ruleset.ParseJSON, and says what to do with YAML.
func ParseFile(file string, data []byte) (*ruleset.Node, ruleset.Problems) {
	if IsYAML(file) {
		text := fmt.Sprintf("is YAML, and the interpreter that Traefik runs plugins with can read JSON only; convert it: yq -o=json . %s > %s (JSON is YAML, so Caddy reads that file too)",
			file, strings.TrimSuffix(file, filepath.Ext(file))+".json")
		return nil, ruleset.Problems{{File: file, Text: text}}
	}
	return ruleset.ParseJSON(file, data)
}
