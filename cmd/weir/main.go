// Command weir checks and tries rate limits, and shows and changes what is counted, without a proxy.
package main

import (
	"os"

	"github.com/proxyweir/weir/cmd/command"
)

func main() {
	if command.Root().Execute() != nil {
		os.Exit(1)
	}
}
