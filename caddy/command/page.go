package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/caddy/page"
	"github.com/proxyweir/weir/cmd/command"
)

// pageCommand returns the command `caddy rate-limit page`.
func pageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page [--address <admin address>] [--config <path> [--adapter <name>]] [--listen <host:port>]",
		Short: "Shows the rules of a running Caddy, with their rates, in a browser",
		Long: `
Serves a page that shows the rules of a running Caddy with what they allow and reject, the keys that come most, and the state of the
stores; and forwards what the page asks to Caddy's admin endpoint, which itself refuses to be opened in a browser.

The page is for this machine alone unless --listen says otherwise. There is no password: who can open it can see clients' keys, reset
counts, and block clients.`,
		Example: "caddy rate-limit page",
		Args:    cobra.NoArgs,
	}
	endpoint := command.Endpoint{Program: program}
	endpoint.Add(cmd)
	listen := cmd.Flags().String("listen", "localhost:2020", "Where to serve the page")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		admin, err := endpoint.Where()
		if err != nil {
			return err
		}
		return showPage(admin, *listen, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// showPage serves the page until the process ends.
func showPage(admin, listen string, out, warnings io.Writer) error {
	forward, err := forwardTo(admin, warnings)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %q: host:port is wanted, such as localhost:2020: %w", listen, err)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen %q: %w", listen, err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	if text := exposure(at); text != "" {
		_, _ = fmt.Fprintln(warnings, text)
	}
	if host == "" || at.Addr().IsUnspecified() {
		host = "localhost"
	}
	if err := reach(forward); err != nil {
		_, _ = fmt.Fprintf(warnings, "warning: the admin endpoint at %s does not answer: %v. The page shows the limits as soon as it does; --address says where it is\n", admin, err)
	}
	_, _ = fmt.Fprintf(out, "http://%s%s\n", hostPort(host, at.Port()), page.Path)
	server := &http.Server{
		Handler:           &pageServer{hosts: hostsOf(host, at), anyAddress: at.Addr().IsUnspecified(), port: at.Port(), forward: forward},
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 16,
	}
	return server.Serve(l)
}

// reach sends one request to an admin endpoint. The error says why it does not answer.
func reach(forward *httputil.ReverseProxy) error {
	within, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	r, err := http.NewRequestWithContext(within, http.MethodGet, page.Path+"health", nil)
	if err != nil {
		return err
	}
	ask := httputil.ProxyRequest{In: r, Out: r.Clone(r.Context())}
	forward.Rewrite(&ask)
	answer, err := forward.Transport.RoundTrip(ask.Out)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// exposure returns a warning if other machines can reach an address, else "".
func exposure(at netip.AddrPort) string {
	if at.Addr().Unmap().IsLoopback() {
		return ""
	}
	return fmt.Sprintf("warning: %s is not for this machine alone: who can reach it can see clients' keys, reset counts, and block "+
		"clients. There is no password and no encryption", at)
}

// pageServer serves the page, and forwards the page's requests, and nothing else, to Caddy's admin endpoint. The endpoint trusts
// everyone who can reach it, so this server must not give other web sites a way to it. They can make a browser send requests here,
// even under a name of theirs that resolves to this machine. So the origin that a browser states for a request must be this server.
type pageServer struct {
	hosts      []string // names and addresses of this server, with the port
	anyAddress bool     // it listens on all addresses of the machine
	port       uint16
	forward    http.Handler
}

// maxBody is the longest request body, in bytes. Those of the page hold at most a key.
const maxBody = 1 << 20

// ServeHTTP implements http.Handler.
func (s *pageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.check(w, r); err != nil {
		page.Refuse(w, err)
		return
	}
	if r.URL.Path == "/" || r.URL.Path == strings.TrimSuffix(page.Path, "/") {
		w.Header().Set("Location", page.Path)
		w.WriteHeader(http.StatusFound)
		return
	}
	if r.URL.Path == page.Path {
		if err := page.Serve(w, r); err != nil {
			page.Refuse(w, err)
		}
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	s.forward.ServeHTTP(w, r)
}

// check returns why a request is refused, or nil. It sets Allow if that is the method.
func (s *pageServer) check(w http.ResponseWriter, r *http.Request) error {
	if !s.goesBy(r.Host) {
		return pageError(http.StatusForbidden, "the host %q is not what this server goes by: %s", r.Host, strings.Join(s.hosts, ", "))
	}
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && !strings.EqualFold(origins[0], "http://"+r.Host) {
		return pageError(http.StatusForbidden, "requests from other sites are refused: the origin is %q", strings.Join(origins, ", "))
	}
	// "same-site" is another port of this host, and is as foreign as any other site. "none" is an action of the user.
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return pageError(http.StatusForbidden, "requests from other sites are refused, links, too: write the address into the browser's address bar")
		}
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost:
		if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
			return pageError(http.StatusUnsupportedMediaType, "the Content-Type is %q: application/json is wanted", r.Header.Get("Content-Type"))
		}
	default:
		w.Header().Set("Allow", "GET, POST")
		return pageError(http.StatusMethodNotAllowed, "GET and POST are taken alone, not %s", r.Method)
	}
	if !ofThePage(r.URL) {
		return pageError(http.StatusNotFound, "there is nothing at this path; the page is at %s", page.Path)
	}
	return nil
}

// goesBy reports whether a Host field names this server. This finds out a site whose own name resolves to this machine. A server
// that listens on all addresses accepts every address, since an address cannot be made to lead elsewhere.
func (s *pageServer) goesBy(host string) bool {
	if slices.ContainsFunc(s.hosts, func(known string) bool { return strings.EqualFold(known, host) }) {
		return true
	}
	if !s.anyAddress {
		return false
	}
	at, err := netip.ParseAddrPort(host)
	return err == nil && at.Port() == s.port
}

// hostsOf returns the values of the Host field that name a server which listens at an address. host is the address as the user
// wrote it.
func hostsOf(host string, at netip.AddrPort) []string {
	names := []string{host}
	if at.Addr().Unmap().IsLoopback() || at.Addr().IsUnspecified() {
		names = append(names, "localhost", "127.0.0.1", "::1")
	}
	if !at.Addr().IsUnspecified() {
		names = append(names, at.Addr().Unmap().String())
	}
	var hosts []string
	for _, name := range names {
		if known := hostPort(name, at.Port()); !slices.Contains(hosts, known) {
			hosts = append(hosts, known)
		}
	}
	return hosts
}

// hostPort writes a host and a port as browsers do: without the port if it is 80.
func hostPort(host string, port uint16) string {
	if port != 80 {
		return net.JoinHostPort(host, fmt.Sprint(port))
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// ofThePage reports whether a path is that of the page, one that redirects there, or an endpoint of the API next to it. An endpoint
// is a single word, so the path has no dots, and nothing that another server could read differently. Of the endpoints about deferred requests the page
// has the list and jobPath, and not those that give out what clients have sent.
func ofThePage(u *url.URL) bool {
	if u.RawPath != "" || u.Host != "" || u.Opaque != "" {
		return false
	}
	if u.Path == "/" || u.Path == strings.TrimSuffix(page.Path, "/") {
		return true
	}
	if u.Path == jobPath {
		return true
	}
	word, beside := strings.CutPrefix(u.Path, page.Path)
	return beside && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// jobPath is the path of the endpoint that shows a deferred request.
const jobPath = page.Path + "deferred/job"

// forwardTo returns a proxy that forwards requests to an admin endpoint, with the origin that the endpoint expects.
func forwardTo(admin string, problems io.Writer) (*httputil.ReverseProxy, error) {
	addr, err := caddy.ParseNetworkAddress(admin)
	if err != nil {
		return nil, fmt.Errorf("admin address %q: host:port or unix//path is wanted: %w", admin, err)
	}
	dialed, host := addr.JoinHostPort(0), addr.JoinHostPort(0)
	header := http.Header{"Origin": {"http://" + host}}
	switch {
	case addr.Network == "unix":
		dialed, _, _ = strings.Cut(addr.Host, "|") // without the permissions of the socket
		host, header = "127.0.0.1", http.Header{}  // at a socket the endpoint has no host, and accepts no origin
	case !slices.Contains([]string{"tcp", "tcp4", "tcp6"}, addr.Network) || addr.PortRangeSize() != 1 || addr.StartPort == 0:
		return nil, fmt.Errorf("admin address %q: host:port or unix//path is wanted, such as %s", admin, caddy.DefaultAdminListen)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", host, host
			r.Out.Header = header.Clone() // none of the fields of the browser
			maps.Copy(r.Out.Header, fieldsOf(r.In.Header, "Accept", "Content-Type"))
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, addr.Network, dialed)
			},
			ResponseHeaderTimeout: time.Minute,
			IdleConnTimeout:       time.Minute,
		},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode >= 300 && r.StatusCode < 400 {
				return fmt.Errorf("it answers with the redirection %d", r.StatusCode)
			}
			kept := fieldsOf(r.Header, "Content-Type", "Content-Length", "Content-Encoding", "Allow", "Retry-After")
			page.SetDataFields(kept)
			r.Header = kept
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				page.Refuse(w, pageError(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", tooLarge.Limit))
				return
			}
			page.Refuse(w, pageError(http.StatusBadGateway, "the admin endpoint at %s does not answer: %s", admin, err))
		},
		ErrorLog: log.New(problems, "", 0),
	}, nil
}

// fieldsOf returns the fields of a header that have one of the names.
func fieldsOf(header http.Header, names ...string) http.Header {
	fields := http.Header{}
	for _, name := range names {
		if values := header.Values(name); len(values) > 0 {
			fields[name] = values
		}
	}
	return fields
}

// pageError returns an error that the request is answered with.
func pageError(status int, format string, values ...any) error {
	return caddy.APIError{HTTPStatus: status, Message: fmt.Sprintf(format, values...)}
}
