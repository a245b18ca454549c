package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/caddy/page"
)

// adminOptions are the flags of commands that ask the admin endpoint of a running Caddy.
type adminOptions struct{ address, config, adapter string }

func (o *adminOptions) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.address, "address", "", "Address of the admin endpoint; the default is that of the configuration, or "+caddy.DefaultAdminListen)
	flags.StringVarP(&o.config, "config", "c", "", "Configuration file that says where the admin endpoint is, if --address does not")
	flags.StringVarP(&o.adapter, "adapter", "a", "", "Name of the config adapter to apply to it")
}

// ask makes a request of the admin endpoint. A nil body is none.
func (o *adminOptions) ask(method, endpoint string, body map[string]any, answer any) error {
	address, err := caddycmd.DetermineAdminAPIAddress(o.address, nil, o.config, o.adapter)
	if err != nil {
		return err
	}
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	response, err := caddycmd.AdminAPIRequest(address, method, page.Path+endpoint, http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("the admin endpoint at %s (--address says where it is): %w", address, err)
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}
