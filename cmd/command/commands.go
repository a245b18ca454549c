package command

import (
	"context"
	"fmt"
	"runtime/debug"

	goredis "github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/cmd/convert"
)

// Commands returns the commands that both programs have.
func (p *Program) Commands() []*cobra.Command {
	converter := convert.Command()
	converter.Example = p.examples("convert /etc/nginx/nginx.conf > limits.yaml")
	return append(p.keyCommands(), converter, p.checkCommand(), p.rulesCommand(), p.replayCommand(), p.explainCommand(), p.topCommand(), p.watchCommand(), p.firewallCommand(), p.advisorCommand())
}

// version is the version that a release is built with (-ldflags -X); "": that of the build info.
var version string

// Root returns the program weir.
func Root() *cobra.Command {
	p := &Program{Name: "weir"}
	goredis.SetLogger(silent{})
	root := &cobra.Command{
		Use:   "weir <command>",
		Short: "Checks and tries rate limits, and shows and changes what is counted",
		Long: `
Weir's command, for rule files (--rules), for Traefik's dynamic configuration (--traefik), and for what is counted: in Redis, as that configuration says or
--redis, or in a running Caddy, by its admin endpoint (--address). ` + "`caddy rate-limit`" + ` has the same commands.`,
		SilenceUsage: true,
		Version:      Version(),
	}
	root.AddCommand(p.Commands()...)
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Prints the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), Version())
			return err
		},
	})
	return root
}

// silent is the log of go-redis, whose errors the commands return.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Version returns the version of the program: that of a release, or of the module that it was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case version != "":
		return version
	case ok && info.Main.Version != "":
		return info.Main.Version
	}
	return "(devel)"
}
