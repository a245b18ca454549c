package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/cmd/command/firewall"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
)

func (p *Program) firewallCommand() *cobra.Command {
	admin := Endpoint{Program: p}
	var addresses, ports, rules, except []string
	var lease string
	o := firewall.Options{}
	cmd := &cobra.Command{
		Use:   "firewall [--port <port>]... [--rule <rule>]... [--except <network>]... [--address <admin address>]... [--dry-run]",
		Short: "Has the kernel drop the packets of addresses that a running Caddy blocks",
		Long: `
Follows the addresses under a penalty or a block of a running Caddy, by its admin endpoint, and has nftables drop what they send to the ports. It needs
CAP_NET_ADMIN, Linux, and nothing else of the rights that Caddy has. It runs until it gets SIGINT or SIGTERM, and then opens all again. If it is killed, or hears
nothing of Caddy, all is open again within the lease.

It keeps out addresses that connections came from, and never those of a trusted proxy, those that any rule exempts, private ones, and those of this machine. Of IPv6
it keeps out the network of 64 bits. All other ports stay open.`,
		Example: p.examples("firewall --rule login --except 203.0.113.0/24"),
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&addresses, "address", nil, "Address of an admin endpoint, once for each Caddy; the default is "+p.defaultAddress())
	admin.addConfig(cmd)
	flags.StringArrayVar(&ports, "port", []string{"80", "443"}, "Port that is closed to them, of TCP and UDP; once for each")
	flags.StringArrayVar(&rules, "rule", nil, "Rule whose addresses are kept out, with its namespace, once for each; the default is all rules")
	flags.StringArrayVar(&except, "except", nil, "Address or network that is never kept out, once for each")
	flags.StringVar(&lease, "lease", "15s", "How long it stays closed if nothing renews it: from 2s to 10m")
	flags.BoolVar(&o.Dry, "dry-run", false, "Only say what would be closed and opened")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.Lease, err = rate.ParseDuration(lease); err != nil || o.Lease < 2*time.Second || o.Lease > 10*time.Minute {
			return fmt.Errorf("--lease %q: must be a duration from 2s to 10m, such as 15s", lease)
		}
		if o.Ports, err = portsOf(ports); err != nil {
			return err
		}
		for _, text := range except {
			network, err := match.ParseNetwork(text)
			if err != nil {
				return fmt.Errorf("--except %w", err)
			}
			o.Except = append(o.Except, network)
		}
		if len(addresses) == 0 {
			addresses = []string{""}
		}
		for i, address := range addresses {
			if slices.Contains(addresses[:i], address) {
				return fmt.Errorf("--address %q: duplicate; write each Caddy once", address)
			}
			one := admin
			one.address = address
			if one.address, err = one.Where(); err != nil {
				return err
			}
			if _, _, err := adminNetwork(one.address); err != nil {
				return fmt.Errorf("--address %q: %w", one.address, err)
			}
			o.Caddys = append(o.Caddys, firewall.Caddy{Name: one.address, Ask: one.askBlocked})
		}
		o.Rules, o.Out = rules, cmd.ErrOrStderr()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return firewall.Run(ctx, o)
	}
	return cmd
}

// portsOf reads the ports that are closed.
func portsOf(texts []string) (ports []uint16, err error) {
	for _, text := range texts {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("--port %q: must be a port from 1 to 65535, such as 443", text)
		}
		if port == 22 {
			return nil, errors.New("--port 22: stays open, so that nobody locks himself out by requests; a rule of your own in nftables can close it")
		}
		if !slices.Contains(ports, uint16(port)) {
			ports = append(ports, uint16(port))
		}
	}
	return ports, nil
}

// longestList is how many bytes a list may have: 1 KiB for each address.
const longestList = firewall.Most << 10

// askBlocked asks for the blocked addresses when they are others than those of a version; nil: they are not, after the wait.
func (e *Endpoint) askBlocked(version string, wait time.Duration) (*firewall.List, error) {
	header := http.Header{"Accept": {"application/json"}, "If-None-Match": {`"` + version + `"`}, "Connection": {"close"}}
	response, err := e.Send(http.MethodGet, "blocked?wait="+wait.String(), header, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotModified {
		return nil, nil
	}
	list, body := new(firewall.List), io.LimitedReader{R: response.Body, N: longestList}
	if err := json.NewDecoder(&body).Decode(list); err != nil {
		if body.N == 0 {
			err = fmt.Errorf("it has more than %d MiB", longestList>>20)
		}
		return nil, fmt.Errorf("the admin endpoint at %s answers something else than a list: %w", e.address, err)
	}
	return list, nil
}
