package e2e

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// startDeferring starts Caddy as an example that defers orders has it, on other ports, with a Redis of its own, and with other texts in place of some. It has a page at the path.
func startDeferring(t *testing.T, name, path string, others map[string]string) *caddy {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "examples", name))
	must.Succeed(t, err)
	text, err := os.ReadFile(filepath.Join(folder, "Caddyfile"))
	must.Succeed(t, err)
	redis := redistest.Start(t, redistest.WithConfig("appendonly yes", "appendfsync always", "maxmemory-policy noeviction"))
	shop, warehouse := freeAddr(), freeAddr()
	var replace []string
	replacements := map[string]string{
		":8080 {":               portOf(shop) + " {",
		":8081 {":               portOf(warehouse) + " {",
		"localhost:8081\n":      warehouse + "\n",
		"localhost:6379\n":      redis.Addr() + " {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\n}\n", // which a busy machine needs
		"root examples/" + name: "root " + folder,
	}
	maps.Copy(replacements, others)
	for example, actual := range replacements {
		if strings.Count(string(text), example) != 1 {
			t.Fatalf("the Caddyfile does not have %q once", example)
		}
		replace = append(replace, example, actual)
	}
	_, config, _ := strings.Cut(strings.NewReplacer(replace...).Replace(string(text)), "\n{\n") // behind the comment
	global, sites, found := strings.Cut(config, "\n}\n")
	if !found {
		t.Fatal("the Caddyfile has no global options")
	}
	return runCaddy(t, shop, path, "admin off\n"+global, sites)
}

// portOf returns the port of an address, as ":port".
func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return ":" + port
}

// A customer who orders several tickets sees the position of those that wait, and then what the warehouse says.
func TestThePageOfTheExampleShowsThePositionAndThenTheResult(t *testing.T) {
	b := open(t, "http://"+startDeferring(t, "defer", "/", nil).addr+"/", phone)
	js[bool](b, `(window.shown = new Map(), new MutationObserver((changes) => {
		for (const {target} of changes) {
			if (target.localName === "li") shown.set(target, [...(shown.get(target) || []), target.textContent]);
		}
	}).observe(document.body, {childList: true, subtree: true}), true)`)
	// If three seconds pass between two of the orders, both find room. Then the customer orders again.
	b.until(`((lines) => {
		const ended = lines.every((line) => shown.get(line)?.at(-1) === "Ordered: one ticket");
		const second = lines.some((line) => /^You are number 2 in the queue: about [1-9]\d* s$/.test(shown.get(line)?.[0]));
		if (ended && !second) for (let i = 0; i < 4; i++) document.querySelector("button").click();
		return ended && second;
	})([...document.querySelectorAll("li")])`)
	if got := js[int](b, `[...shown.values()].filter((texts) => texts[0] === "Ordered: one ticket").length`); got == 0 {
		t.Error("no order found room")
	}
}
