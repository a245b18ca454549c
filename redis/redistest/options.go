package redistest

import (
	"fmt"
	"strconv"
	"strings"
)

// Option is a setting with which a server starts.
type Option func(*options)

type options struct {
	lines        []string
	password     string
	certificates *Certificates
	clients      string
	clock        bool

	cluster  bool
	sentinel bool
}

func newOptions(opts []Option) options {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithConfig adds lines to the configuration file, after the lines of Start.
func WithConfig(lines ...string) Option {
	return func(o *options) { o.lines = append(o.lines, lines...) }
}

// WithPassword sets the password of the default user. The servers of a cluster, and those under Sentinel, use it among themselves. Sentinels
// have the same password.
func WithPassword(password string) Option {
	return func(o *options) { o.password = password }
}

// WithUser adds a user, with rules in the form of ACL SETUSER, such as "~weir:*" and "+@all". This package itself sends its commands as the
// default user.
func WithUser(name, password string, rules ...string) Option {
	line := fmt.Sprintf("user %s on >%s %s", name, password, strings.Join(rules, " "))
	return WithConfig(line)
}

// WithTLS makes the server use TLS only, with those certificates. clients says whether clients must have a certificate of that authority:
// "yes", "no", or "optional", as in tls-auth-clients.
func WithTLS(c *Certificates, clients string) Option {
	return func(o *options) { o.certificates, o.clients = c, clients }
}

// WithClock makes the server use the time that SetTime sets. Before the first SetTime it uses the real time. This does not change timeouts
// that Redis measures by the monotonic clock: it still interrupts a script that hangs.
func WithClock() Option {
	return func(o *options) { o.clock = true }
}

// config returns a configuration file for a server of that major version.
func (o *options) config(port, major int) string {
	var b strings.Builder
	line := func(words ...string) {
		b.WriteString(strings.Join(words, " "))
		b.WriteByte('\n')
	}
	line("bind 127.0.0.1")
	if o.clock { // that thread waits until a time of that clock, so if it stands in the past it never waits, and keeps a core busy
		line("jemalloc-bg-thread no")
	}
	if c := o.certificates; c != nil {
		line("port 0")
		line("tls-port", strconv.Itoa(port))
		line("tls-ca-cert-file", strconv.Quote(c.CAFile))
		line("tls-cert-file", strconv.Quote(c.serverCertFile))
		line("tls-key-file", strconv.Quote(c.serverKeyFile))
		line("tls-auth-clients", o.clients)
		line("tls-replication yes")
	} else {
		line("port", strconv.Itoa(port))
	}
	if o.password != "" {
		line("requirepass", strconv.Quote(o.password))
	}
	if !o.sentinel {
		line(`save ""`)
		line("appendonly no")
		line("rdb-del-sync-files yes") // a replica, too, starts empty after a restart
		line("repl-diskless-sync-delay 0")
		line("hz 100") // how often per second it checks whether it must end
		if major >= 7 {
			line("shutdown-timeout 0")
			line("enable-debug-command local")
		}
		if o.password != "" {
			line("masterauth", strconv.Quote(o.password))
		}
	}
	if o.cluster {
		line("cluster-enabled yes")
		if o.certificates != nil {
			line("tls-cluster yes")
		}
	}
	for _, l := range o.lines {
		line(l)
	}
	return b.String()
}
