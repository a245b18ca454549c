// Package command has the commands of Weir: those of the program weir, which knows rule files, Traefik's configuration and Redis, and asks a running Caddy by its
// admin endpoint. `caddy rate-limit` has them, too. The package does not import Caddy: what only Caddy can do is in Program.Caddy.
package command

import (
	"strings"

	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/ruleset"
)

// Program is the program that has the commands.
type Program struct {
	Name  string // what its users type: "weir", or "caddy rate-limit"
	Caddy *Caddy // nil: it has none
}

// Caddy is what a program with Caddy in it does for the commands. A config is the name of a configuration's file, "" for the Caddyfile of this folder, and an
// adapter that of a config adapter, "" for the one that the file's name says.
type Caddy struct {
	// Admin returns the address of the admin endpoint of a configuration; config "" is that of none.
	Admin func(config, adapter string) (string, error)

	// Rules returns the table of a configuration's rules.
	Rules func(config, adapter string) (describe.Table, error)

	// Logged returns the rules of a configuration that a log can be replayed with, and says which it leaves out.
	Logged func(config, adapter string) (files []*ruleset.File, leftOut []string, err error)
}

// examples returns the examples of a command, one a line.
func (p *Program) examples(lines ...string) string {
	return p.Name + " " + strings.Join(lines, "\n"+p.Name+" ")
}
