// Command caddy is Caddy with Weir built in.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/proxyweir/weir/caddy"
)

func main() {
	caddycmd.Main()
}
