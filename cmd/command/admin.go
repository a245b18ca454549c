package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// Endpoint is the admin endpoint of a running Caddy. Add makes flags of it.
type Endpoint struct {
	Program *Program

	address, config, adapter string
}

// Add adds the flags that say where the endpoint is.
func (e *Endpoint) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.address, "address", "", "Address of a Caddy's admin endpoint; the default is "+e.Program.defaultAddress())
	e.addConfig(cmd)
}

// addConfig adds the flags that say where the endpoint is if no address does.
func (e *Endpoint) addConfig(cmd *cobra.Command) {
	if e.Program.Caddy == nil {
		return
	}
	cmd.Flags().StringVarP(&e.config, "config", "c", "", "Configuration file that says where the admin endpoint is, if --address does not")
	cmd.Flags().StringVarP(&e.adapter, "adapter", "a", "", "Name of the config adapter to apply to it")
}

// defaultAddress is the address of the admin endpoint where no flag says it, in words.
func (p *Program) defaultAddress() string {
	if p.Caddy == nil {
		return caddysOwn()
	}
	return "that of the configuration, or " + caddysOwn()
}

// caddysOwn is the address of a Caddy's admin endpoint whose configuration says none.
func caddysOwn() string { return cmp.Or(os.Getenv("CADDY_ADMIN"), "localhost:2019") }

// Where returns the address of the endpoint.
func (e *Endpoint) Where() (string, error) {
	if e.address != "" || e.Program.Caddy == nil {
		return cmp.Or(e.address, caddysOwn()), nil
	}
	return e.Program.Caddy.Admin(e.config, e.adapter)
}

// adminNetwork returns the network and the address in it of an admin endpoint: host:port, or unix//path, each maybe behind its network.
func adminNetwork(address string) (network, at string, err error) {
	network, at, found := strings.Cut(address, "/")
	if !found {
		network, at = "tcp", address
	}
	if network == "unix" {
		at, _, _ = strings.Cut(at, "|") // who may use it
		return network, at, nil
	}
	host, port, err := net.SplitHostPort(at)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n == 0 || network != "tcp" || strings.Contains(host, "/") {
		return "", "", errors.New("must be one address, such as localhost:2019 or unix//run/caddy.sock")
	}
	return network, at, nil
}

// Send makes a request of the endpoint, below /rate_limit/. An answer that is an error is one here, too.
func (e *Endpoint) Send(method, endpoint string, header http.Header, body io.Reader) (*http.Response, error) {
	address, err := e.Where()
	if err != nil {
		return nil, err
	}
	network, at, err := adminNetwork(address)
	if err != nil {
		return nil, fmt.Errorf("--address %q: %w", address, err)
	}
	origin := "http://127.0.0.1"
	if network == "tcp" {
		origin = "http://" + at
	}
	request, err := http.NewRequest(method, origin+"/rate_limit/"+endpoint, body)
	if err != nil {
		return nil, err
	}
	request.Header = header
	if network == "tcp" {
		request.Header.Set("Origin", origin)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}}
	hint := "--address says where it is"
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil && e.Program.Caddy == nil {
		hint += "; for a Traefik write --traefik FILE"
	}
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = errorOf(response)
		_ = response.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("the admin endpoint at %s (%s): %w", address, hint, err)
	}
	return response, nil
}

// errorOf returns the error that an answer is.
func errorOf(response *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("HTTP %d: %w", response.StatusCode, err)
	}
	var said struct{ Error string }
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		said.Error = string(text)
	}
	return fmt.Errorf("HTTP %d: %s", response.StatusCode, said.Error)
}

// Ask makes a request of the endpoint. A nil body is none.
func (e *Endpoint) Ask(method, endpoint string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	response, err := e.Send(method, endpoint, http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}
