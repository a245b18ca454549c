// Command generate writes redis/lua.go: see package luaparts. It is run by go generate, in the folder of that package. A test finds a file that is not
// up to date.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/proxyweir/weir/tools/luaparts"
)

func main() {
	const folder = "../../redis"
	source, err := luaparts.Generate(folder, nil)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, luaparts.Written), source, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "luaparts:", err)
		os.Exit(1)
	}
}
