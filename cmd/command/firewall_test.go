package command

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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
		{[]string{"--address", "localhost:2019-2020"}, `--address "localhost:2019-2020": must be one address, such as localhost:2019`},
		{[]string{"--address", "http://localhost:2019"}, `--address "http://localhost:2019": must be one address, such as localhost:2019`},
		{[]string{"now"}, `unknown command "now"`},
	} {
		cmd := (&Program{}).firewallCommand()
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

// Defect found: the command took an answer of any length into memory.
func TestTheFirewallTakesNoEndlessList(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, `{"version":"`)
		for part := strings.Repeat("a", 1<<20); err == nil; {
			_, err = io.WriteString(w, part)
		}
	}))
	defer server.Close()
	o := Endpoint{address: strings.TrimPrefix(server.URL, "http://")}
	_, err := o.askBlocked("", 0)
	must.Contain(t, fmt.Sprint(err), "answers something else than a list: it has more than 64 MiB")
}
