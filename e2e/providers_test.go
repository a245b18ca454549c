package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
)

// oneRule and twoRules are one configuration that uses every kind of setting. Each test writes it in a form that Traefik accepts.
//
// oneRule is a middleware with one rule: five requests in 366 days for each X-User. twoRules is a middleware with two rules, behind one
// proxy: requests with X-Plan: free may be three in 366 days, and POSTs and PUTs below /two/v1 and /two/v2 two, except from 10.0.0.0/8.
var oneRule = []string{
	"limit", "5/366d",
	"key", "first(header:X-User,client_ip)",
	"algorithm", "token_bucket",
	"headers", "x_ratelimit",
}

var twoRules = []string{
	"rules[0].name", "free",
	"rules[0].match.headers.X-Plan", "free",
	"rules[0].match.query.userId", "!*",
	"rules[0].match.cookies.planOf", "!staff*",
	"rules[0].limit", "3/366d",
	"rules[0].countRejected", "true",
	"rules[1].name", "posts",
	"rules[1].match.methods", "POST, PUT",
	"rules[1].match.pathPrefixes", "/two/v1,/two/v2",
	"rules[1].match.exceptIPs", "10.0.0.0/8",
	"rules[1].key[0]", "client_ip",
	"rules[1].key[1]", "query:a",
	"rules[1].limit", "2/366d",
	"rules[1].ipv4Prefix", "24",
	"ipStrategy.depth", "1",
	"jitter", "0.5",
	"message", "Slow down, please.",
}

const messaging = `{
  "rules": [{"name": "all", "limit": "20/366d"}],
  "domain": "messaging",
  "descriptors": [
    {"key": "message_type", "value": "marketing", "rate_limit": {"unit": "year", "requests_per_unit": 5}},
    {"key": "to", "descriptors": [{"key": "path", "rate_limit": {"unit": "year", "requests_per_unit": 2}}]}
  ]
}`

// threeRules are limits by a rule file, in the words of labels.
func threeRules(path string) []string {
	return []string{
		"rules[0].name", "planned",
		"rules[0].key", "header:X-User,header:X-Plan",
		"rules[0].tiers.source", "header:X-Plan",
		"rules[0].tiers.limits.free", "2/366d",
		"rules[0].tiers.limits.staff", "unlimited",
		"rules[0].tiers.limits.*", "1/366d",
		"rules[0].overrides[0].key", "vip,free",
		"rules[0].overrides[0].limit", "4/366d",
		"rules[0].overrides[1].key[0]", "staff",
		"rules[0].overrides[1].key[1]", "free",
		"rules[0].overrides[1].limit", "unlimited",
		"rulesFile", path,
		"rulesInterval", "1s",
		"domain", "messaging",
		"descriptors[0].entries[0].key", "message_type",
		"descriptors[0].entries[0].source", "header:X-Type",
		"descriptors[1].entries[0].key", "to",
		"descriptors[1].entries[0].source", "header:X-To",
		"descriptors[1].entries[1].key", "path",
		"descriptors[1].entries[1].source", "path",
	}
}

// messagingFile returns the path of a rule file that threeRules name.
func messagingFile(t *testing.T) string {
	t.Helper()
	return ruleFile(t, filepath.Join(t.TempDir(), "rules.json"), messaging)
}

// providedRules returns the settings of the middlewares in the words of labels.
func providedRules(t *testing.T) map[string][]string {
	return map[string][]string{"one": oneRule, "two": twoRules, "three": threeRules(messagingFile(t))}
}

// checkLimits checks that a host's /one, /two and /three are limited by oneRule, twoRules and threeRules.
func checkLimits(t *testing.T, s *site) {
	t.Helper()
	for _, user := range []string{"a", "b"} {
		s.admit(1, "/one", "X-User", user).want(t, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "4", "RateLimit", "-")
		s.exactly(4, "/one", "X-User", user)
	}
	s.admit(9, "/two")
	s.exactly(3, "/two", "X-Plan", "free")
	s.admit(2, "/two?userId=1", "X-Plan", "free")
	s.admit(2, "/two", "X-Plan", "free", "Cookie", "planOf=staff-1")
	s.exactly(2, "POST /two/v1/x?a=b", "X-Forwarded-For", "192.0.2.7")
	if r := s.reject("PUT /two/v2?a=b", "X-Forwarded-For", "192.0.2.8"); r.body != "Slow down, please.\n" {
		t.Errorf("body %q, want the message", r.body)
	}
	s.exactly(2, "POST /two/v1?a=c", "X-Forwarded-For", "192.0.2.7")
	s.admit(3, "POST /two/v10?a=b", "X-Forwarded-For", "192.0.2.7")
	s.admit(3, "POST /two/v1?a=b", "X-Forwarded-For", "10.1.2.3")
	checkThree(t, s)
}

// checkThree checks that a host's /three is limited by threeRules.
func checkThree(t *testing.T, s *site) {
	t.Helper()
	user := func(name, plan string) []string { return []string{"X-User", name, "X-Plan", plan} }
	s.exactly(2, "/three", user("a", "free")...)
	s.exactly(1, "/three", user("a", "gold")...)
	s.exactly(4, "/three", user("vip", "free")...)
	s.admit(3, "/three", user("staff", "free")...)
	s.admit(3, "/three", user("any", "staff")...)
	s.exactly(5, "/three", "X-Plan", "staff", "X-Type", "marketing")
	s.exactly(2, "/three/a", "X-Plan", "staff", "X-To", "x")
	s.reject("/three", user("b", "staff")...) // the 20 of the file's rule are used up: 2 + 1 + 4 + 3 + 3 + 5 + 2
}

func TestAFileOfYAML(t *testing.T) {
	s := newSite(t)
	s.limit("one", `
		limit: 5/366d
		key: ['first(header:X-User, client_ip)']
		algorithm: token_bucket
		headers: [x_ratelimit]`)
	s.limit("two", `
		rules:
		  - name: free
		    match:
		      headers:
		        X-Plan: free
		      query: {userId: '!*'}
		      cookies: {planOf: '!staff*'}
		    limit: 3/366d
		    countRejected: true
		  - name: posts
		    match:
		      methods: [POST, PUT]
		      pathPrefixes: [/two/v1, /two/v2]
		      exceptIPs: [10.0.0.0/8]
		    key: [client_ip, 'query:a']
		    limit: 2/366d
		    ipv4Prefix: 24
		ipStrategy:
		  depth: 1
		jitter: 0.5
		message: Slow down, please.`)
	s.limit("three", `
		rules:
		  - name: planned
		    key: [header:X-User, header:X-Plan]
		    tiers:
		      source: header:X-Plan
		      limits: {free: 2/366d, staff: unlimited, '*': 1/366d}
		    overrides:
		      - {key: [vip, free], limit: 4/366d}
		      - key: staff, free
		        limit: unlimited
		rulesFile: [`+messagingFile(t)+`]
		rulesInterval: 1s
		domain: messaging
		descriptors:
		  - entries:
		      - {key: message_type, source: 'header:X-Type'}
		  - entries: [{key: to, source: 'header:X-To'}, {key: path, source: path}]`)
	for _, name := range []string{"one", "two", "three"} {
		s.route("/"+name, name)
	}
	s.apply()
	checkLimits(t, s)
}

func TestAFileOfTOML(t *testing.T) {
	s := newSite(t)
	s.publish(filepath.Join(s.dynamic, s.name+".toml"), strings.NewReplacer("HOST", s.host(), "NAME", s.name, "URL", upstream.url, "PATH", messagingFile(t)).Replace(`
[http.services.NAME.loadBalancer]
  [[http.services.NAME.loadBalancer.servers]]
    url = "URL"

[http.routers.NAME-one]
  rule = "Host(`+"`HOST`) && PathPrefix(`/one`)"+`"
  service = "NAME"
  middlewares = ["NAME-one"]

[http.routers.NAME-two]
  rule = "Host(`+"`HOST`) && PathPrefix(`/two`)"+`"
  service = "NAME"
  middlewares = ["NAME-two"]

[http.routers.NAME-three]
  rule = "Host(`+"`HOST`) && PathPrefix(`/three`)"+`"
  service = "NAME"
  middlewares = ["NAME-three"]

[http.middlewares.NAME-one.plugin.weir]
  limit = "5/366d"
  key = ["header:X-User"]
  algorithm = "token_bucket"
  headers = ["x_ratelimit"]

[http.middlewares.NAME-two.plugin.weir]
  jitter = 0.5
  message = "Slow down, please."

  [http.middlewares.NAME-two.plugin.weir.ipStrategy]
    depth = 1

  [[http.middlewares.NAME-two.plugin.weir.rules]]
    name = "free"
    limit = "3/366d"
    countRejected = true

    [http.middlewares.NAME-two.plugin.weir.rules.match.headers]
      X-Plan = "free"

    [http.middlewares.NAME-two.plugin.weir.rules.match.query]
      userId = "!*"

    [http.middlewares.NAME-two.plugin.weir.rules.match.cookies]
      planOf = "!staff*"

  [[http.middlewares.NAME-two.plugin.weir.rules]]
    name = "posts"
    key = ["client_ip", "query:a"]
    limit = "2/366d"
    ipv4Prefix = 24

    [http.middlewares.NAME-two.plugin.weir.rules.match]
      methods = ["POST", "PUT"]
      pathPrefixes = ["/two/v1", "/two/v2"]
      exceptIPs = ["10.0.0.0/8"]

[http.middlewares.NAME-three.plugin.weir]
  rulesFile = "PATH"
  domain = "messaging"

  [[http.middlewares.NAME-three.plugin.weir.descriptors]]
    entries = [{key = "message_type", source = "header:X-Type"}]

  [[http.middlewares.NAME-three.plugin.weir.descriptors]]
    entries = [{key = "to", source = "header:X-To"}, {key = "path", source = "path"}]

  [[http.middlewares.NAME-three.plugin.weir.rules]]
    name = "planned"
    key = ["header:X-User", "header:X-Plan"]
    tiers = {source = "header:X-Plan", limits = {free = "2/366d", staff = "unlimited", "*" = "1/366d"}}
    overrides = [{key = ["vip", "free"], limit = "4/366d"}, {key = "staff,free", limit = "unlimited"}]
`))
	t.Cleanup(func() { s.publish(filepath.Join(s.dynamic, s.name+".toml"), "") })
	awaitRoute(t, s)
	checkLimits(t, s)
}

// awaitRoute waits until a host is served.
func awaitRoute(t *testing.T, s *site) {
	t.Helper()
	eventually(t, "Traefik has the site", func() bool {
		r, err := s.try("/two/up")
		return err == nil && r.status == http.StatusOK
	})
}

// labels are a container's labels: a service and routers, next to the settings of the middlewares.
func labels(t *testing.T, s *site) map[string]string {
	service, _ := url.Parse(upstream.url)
	_, port, _ := net.SplitHostPort(service.Host)
	l := map[string]string{
		"traefik.enable": "true",
		"traefik.http.services.backend.loadbalancer.server.port": port,
	}
	for name, rule := range providedRules(t) {
		l["traefik.http.routers."+name+".rule"] = fmt.Sprintf("Host(`%s`) && PathPrefix(`/%s`)", s.host(), name)
		l["traefik.http.routers."+name+".entrypoints"] = "web"
		l["traefik.http.routers."+name+".middlewares"] = name
		l["traefik.http.routers."+name+".service"] = "backend"
		for i := 0; i < len(rule); i += 2 {
			l["traefik.http.middlewares."+name+".plugin.weir."+rule[i]] = rule[i+1]
		}
	}
	return l
}

func TestLabelsOfADockerContainer(t *testing.T) {
	docker := startDockerd(t)
	tr := startTraefik(t, settings{providers: "docker: {endpoint: '" + docker.endpoint + "', exposedByDefault: false}"})
	s := tr.newSite(t)
	docker.heard()
	docker.run("web", labels(t, s))
	awaitRoute(t, s)
	checkLimits(t, s)

	// Another container is added: counters survive.
	other := tr.newSite(t)
	docker.run("other", map[string]string{
		"traefik.enable": "true",
		"traefik.http.services.other.loadbalancer.server.port":    labels(t, s)["traefik.http.services.backend.loadbalancer.server.port"],
		"traefik.http.routers.other.rule":                         "Host(`" + other.host() + "`)",
		"traefik.http.routers.other.middlewares":                  "other",
		"traefik.http.middlewares.other.plugin.weir.average":      "2",
		"traefik.http.middlewares.other.plugin.weir.period":       "8784h",
		"traefik.http.middlewares.other.plugin.weir.burst":        "2",
		"traefik.http.middlewares.other.plugin.weir.no.such.word": "1",
	})
	eventually(t, "the second container's middleware is refused", func() bool {
		return strings.Contains(strings.Join(errorsOf(other, "other@docker"), "\n"), `"no" is not a field`)
	})
	s.reject("/one", "X-User", "a")
	s.admit(1, "/one", "X-User", "c")
}

// errorsOf returns the errors in the log that name a middleware.
func errorsOf(s *site, middleware string) []string {
	var list []string
	for _, e := range s.log() {
		if e.Level == "error" && strings.Contains(e.raw, middleware) {
			list = append(list, e.Message+" "+e.Error)
		}
	}
	return list
}

// A key with a path for each setting, as in Traefik's providers of Redis, Consul, etcd and ZooKeeper.
func TestKeysOfAKeyValueStore(t *testing.T) {
	store := redistest.Start(t, redistest.WithConfig("notify-keyspace-events KEA"))
	tr := startTraefik(t, settings{providers: "redis: {endpoints: ['" + store.Addr() + "']}"})
	s := tr.newSite(t)
	pairs := []string{"MSET", "traefik/http/services/backend/loadBalancer/servers/0/url", upstream.url}
	for name, rule := range providedRules(t) {
		pairs = append(pairs,
			"traefik/http/routers/"+name+"/rule", fmt.Sprintf("Host(`%s`) && PathPrefix(`/%s`)", s.host(), name),
			"traefik/http/routers/"+name+"/middlewares/0", name,
			"traefik/http/routers/"+name+"/service", "backend")
		for i := 0; i < len(rule); i += 2 {
			path := strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(rule[i])
			pairs = append(pairs, "traefik/http/middlewares/"+name+"/plugin/weir/"+path, rule[i+1])
		}
	}
	store.MustDo(t, pairs...)
	awaitRoute(t, s)
	checkLimits(t, s)
}
