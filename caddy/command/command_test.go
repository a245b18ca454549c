package command

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/cmd/command"
)

func TestCaddyRateLimitHasTheCommandsOfWeir(t *testing.T) {
	var ours []string
	for _, c := range commands() {
		ours = append(ours, c.Name())
	}
	theirs := command.Root().Commands()
	for _, c := range theirs {
		if !slices.Contains(ours, c.Name()) && c.Name() != "version" {
			t.Errorf("weir has the command %s, and caddy rate-limit has not", c.Name())
		}
	}
	for _, name := range []string{"check", "rules", "replay", "key", "page", "firewall", "deferred", "advisor"} {
		if !slices.Contains(ours, name) {
			t.Errorf("caddy rate-limit has no %s any more", name)
		}
	}
}

// Flags are checked when a command runs, so two that are alike would otherwise be found by users.
func TestEveryCommandPrintsItsHelp(t *testing.T) {
	for _, list := range [][]*cobra.Command{commands(), command.Root().Commands()} {
		for _, c := range list {
			for _, one := range append(c.Commands(), c) {
				if one.Short == "" || one.UsageString() == "" {
					t.Errorf("%s has no help", one.CommandPath())
				}
			}
		}
	}
}
