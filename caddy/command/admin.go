package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// where returns the address of the admin endpoint.
func (o *adminOptions) where() (string, error) {
	return caddycmd.DetermineAdminAPIAddress(o.address, nil, o.config, o.adapter)
}

// send makes a request of the admin endpoint.
func (o *adminOptions) send(method, endpoint string, header http.Header, body io.Reader) (*http.Response, error) {
	address, err := o.where()
	if err != nil {
		return nil, err
	}
	response, err := caddycmd.AdminAPIRequest(address, method, page.Path+endpoint, header, body)
	if err != nil {
		return nil, fmt.Errorf("the admin endpoint at %s (--address says where it is): %w", address, err)
	}
	return response, nil
}

// ask makes a request of the admin endpoint. A nil body is none.
func (o *adminOptions) ask(method, endpoint string, body map[string]any, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	response, err := o.send(method, endpoint, http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}
