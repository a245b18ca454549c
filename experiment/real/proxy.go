package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/proxyweir/weir/experiment/simulation"
)

// proxy is what A sends to.
type proxy struct {
	address string
	metrics string // where its metrics are
	process string // where those of its process are
}

// plan is what the proxies of a cell are made by.
type plan struct {
	arm       arm
	limits    simulation.Limits
	algorithm string
	service   string // addresses
	redis     string
	adviser   string
}

// caddyWord is the first argument with which this program is Caddy. The program is both, so that nothing must be built for it.
const caddyWord = "caddy"

// caddyfile is the configuration of a Caddy: its options, the lines of an arm before a service, and its metrics on another port.
const caddyfile = `{
	admin off
	auto_https off
	persist_config off
	log {
		output stderr
		level WARN
	}
	%s
}
http://%s {
	bind fd/3
	route {
		%s
		reverse_proxy %s
	}
}
http://%s {
	bind fd/4
	metrics
}
`

// zone is a limit of the proxies, in the words of both kinds.
type zone struct {
	name, key, keyOfTraefik string
	requests, burst         int64
	period                  string
	adapt                   bool
}

// zones returns the limits of a plan. Buckets have a burst, as in the simulation.
func (p *plan) zones() []zone {
	var list []zone
	add := func(z zone, rate float64) {
		if rate == 0 {
			return
		}
		if p.algorithm == "token_bucket" || p.algorithm == "leaky_bucket" {
			z.burst = simulation.Burst(rate)
		}
		z.adapt = p.arm.adviser != ""
		list = append(list, z)
	}
	add(zone{name: "client", key: "{client_ip}", keyOfTraefik: "client_ip", requests: simulation.Requests(p.limits.Client, simulation.PeriodOfClient), period: "10s"}, p.limits.Client)
	add(zone{name: "all", key: "{host}", keyOfTraefik: "host", requests: simulation.Requests(p.limits.All, simulation.PeriodOfAll), period: "2s"}, p.limits.All)
	return list
}

// floor and ceiling are how far advice may move a limit.
func (z zone) ceiling() int64 { return 4 * z.requests }
func (z zone) floor() int64   { return max(1, z.requests/4) }

// gates are the words for those of an advisor, in the given spelling of a setting that goes with full ones.
func (p *plan) gates(separator, warmUp string) string {
	if p.arm.adviser == "study" || p.arm.adviser == "changes" {
		return "gates" + separator + "bounds"
	}
	return "gates" + separator + "full" + warmUp
}

// interval is how often proxies ask the advisor.
func (p *plan) interval() time.Duration { return max(time.Second, p.arm.interval) }

func (p *plan) caddyfile(address, metrics string) string {
	address = address[strings.LastIndex(address, ":"):] // whatever host a request names
	if p.arm.bare {
		return fmt.Sprintf(caddyfile, "", address, p.arm.lines, p.service, metrics)
	}
	var b strings.Builder
	b.WriteString("rate_limit {\nnamespace shop\n")
	if p.arm.guard {
		fmt.Fprintf(&b, "guard {\nmax %d\nmin %d\n", mostOfGuards/proxies, leastOfGuards/proxies)
		if p.arm.presses {
			fmt.Fprintf(&b, "pressure http://%s/health {\nfield load\n}\n", p.service)
		}
		b.WriteString("}\n")
	}
	for _, z := range p.zones() {
		fmt.Fprintf(&b, "zone %s {\nkey %s\nlimit %d/%s\nalgorithm %s\non_error open\nipv6_prefix 64\n", z.name, z.key, z.requests, z.period, p.algorithm)
		if z.burst > 0 {
			fmt.Fprintf(&b, "burst %d\n", z.burst)
		}
		if z.adapt {
			fmt.Fprintf(&b, "adapt {\nfloor %d/%s\nceiling %d/%s\nstep 100%% 1s\n}\n", z.floor(), z.period, z.ceiling(), z.period)
		}
		b.WriteString("}\n")
	}
	b.WriteString("}")
	global := fmt.Sprintf("rate_limit {\nstore redis %s {\nnodes %d\n}\n", p.redis, proxies)
	if p.adviser != "" {
		global += fmt.Sprintf("advisor http://%s/v1/advice {\nmode apply\ninterval %s\nfleet shop\n%s\n}\n", p.adviser, p.interval(), p.gates(" ", "\nwarm_up 10s"))
	}
	return fmt.Sprintf(caddyfile, global+"}", address, b.String(), p.service, metrics)
}

// startCaddy starts a Caddy. It gets its sockets from here, so no port can be lost to others meanwhile, and no request comes too early.
func startCaddy(folder, name string, p *plan) (*program, proxy, error) {
	var of proxy
	var files []*os.File
	for _, to := range []*string{&of.address, &of.metrics} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, of, err
		}
		defer listener.Close()
		file, err := listener.(*net.TCPListener).File()
		if err != nil {
			return nil, of, err
		}
		defer file.Close()
		*to = listener.Addr().String()
		files = append(files, file)
	}
	of.process = of.metrics
	file := filepath.Join(folder, name+".caddyfile")
	if err := os.WriteFile(file, []byte(p.caddyfile(of.address, of.metrics)), 0o600); err != nil {
		return nil, of, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, of, err
	}
	command := exec.Command(self, caddyWord, "run", "--config", file, "--adapter", "caddyfile")
	command.Env = append(os.Environ(), "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder, "GOMAXPROCS=1")
	command.ExtraFiles = files
	started, err := start(folder, name, command)
	return started, of, err
}

const traefikStatic = `global: {checkNewVersion: false, sendAnonymousUsage: false}
log: {level: WARN}
entryPoints:
  web: {address: "%s"}
  metrics: {address: "%s"}
metrics: # of its process only, so that requests cost nothing more
  prometheus: {entryPoint: metrics, addEntryPointsLabels: false, addServicesLabels: false}
experimental:
  localPlugins:
    weir: {moduleName: github.com/proxyweir/weir}
providers:
  file: {directory: dynamic}
`

func (p *plan) traefik(metrics string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `http:
  routers:
    shop: {rule: "PathPrefix(`+"`/`"+`)", service: shop, entryPoints: [web], middlewares: [shop]}
  services:
    shop: {loadBalancer: {servers: [{url: "http://%s"}]}}
  middlewares:
    shop:
      plugin:
        weir:
          namespace: shop
          metrics: {address: "%s"}
          store: {redis: {address: "%s", nodes: %d}}
`, p.service, metrics, p.redis, proxies)
	if p.arm.guard {
		pressure := ""
		if p.arm.presses {
			pressure = fmt.Sprintf(", pressure: {url: \"http://%s/health\", field: load}", p.service)
		}
		fmt.Fprintf(&b, "          guard: {max: %d, min: %d%s}\n", mostOfGuards/proxies, leastOfGuards/proxies, pressure)
	}
	if p.adviser != "" {
		fmt.Fprintf(&b, "          advisor: {url: \"http://%s/v1/advice\", mode: apply, interval: %s, fleet: shop, %s}\n", p.adviser, p.interval(), p.gates(": ", ", warmUp: 10s"))
	}
	b.WriteString("          rules:\n")
	for _, z := range p.zones() {
		fmt.Fprintf(&b, "            - name: %s\n              key: %s\n              limit: %d/%s\n              algorithm: %s\n              onError: open\n",
			z.name, z.keyOfTraefik, z.requests, z.period, p.algorithm)
		if z.burst > 0 {
			fmt.Fprintf(&b, "              burst: %d\n", z.burst)
		}
		if z.adapt {
			fmt.Fprintf(&b, "              adapt: {floor: %d/%s, ceiling: %d/%s, step: 100%% 1s}\n", z.floor(), z.period, z.ceiling(), z.period)
		}
	}
	return b.String()
}

// startTraefik starts a Traefik with the plugin of this checkout.
func startTraefik(folder string, p *plan) (*program, proxy, error) {
	var of proxy
	var err error
	for _, to := range []*string{&of.address, &of.metrics, &of.process} {
		if *to, err = freeAddress(); err != nil {
			return nil, of, err
		}
	}
	folder = filepath.Join(folder, "traefik")
	plugins := filepath.Join(folder, "plugins-local", "src", "github.com", "proxyweir")
	for _, name := range []string{plugins, filepath.Join(folder, "dynamic")} {
		if err = os.MkdirAll(name, 0o700); err != nil {
			return nil, of, err
		}
	}
	if err = os.Symlink(checkout(), filepath.Join(plugins, "weir")); err != nil {
		return nil, of, err
	}
	if err = os.WriteFile(filepath.Join(folder, "traefik.yml"), fmt.Appendf(nil, traefikStatic, of.address, of.process), 0o600); err != nil {
		return nil, of, err
	}
	if err = os.WriteFile(filepath.Join(folder, "dynamic", "shop.yml"), []byte(p.traefik(of.metrics)), 0o600); err != nil {
		return nil, of, err
	}
	command := exec.Command(traefikProgram(), "--configFile=traefik.yml")
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	started, err := start(folder, "traefik", command)
	return started, of, err
}

// traefikProgram is the path of the program: as scripts/traefik says.
func traefikProgram() string {
	if path := os.Getenv("TRAEFIK_BIN"); path != "" {
		return path
	}
	return filepath.Join(checkout(), "bin", "traefik")
}
