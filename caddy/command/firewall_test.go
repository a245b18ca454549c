package command

import (
	"io"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestTheFirewallSaysWhichFlagIsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--port", "22"}, "--port 22: stays open, so that nobody locks himself out"},
		{[]string{"--port", "https"}, `--port "https": must be a port from 1 to 65535, such as 443`},
		{[]string{"--port", "0"}, `--port "0": must be a port from 1 to 65535, such as 443`},
		{[]string{"--lease", "1s"}, `--lease "1s": must be a duration from 2s to 10m, such as 15s`},
		{[]string{"--lease", "soon"}, `--lease "soon": must be a duration from 2s to 10m, such as 15s`},
		{[]string{"--except", "10.0.0/8"}, `--except "10.0.0/8" must be an address or a network such as 10.0.0.0/8; write 10.0.0.0/8`},
		{[]string{"--address", "localhost:2019", "--address", "localhost:2019"}, `--address "localhost:2019": duplicate; write each Caddy once`},
		{[]string{"now"}, `unknown command "now"`},
	} {
		cmd := firewallCommand()
		cmd.SetArgs(append(c.args, "--dry-run"))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.Execute()
		if err == nil {
			t.Fatalf("%q is taken", c.args)
		}
		must.Contain(t, err.Error(), c.want, "%q", c.args)
	}
}
