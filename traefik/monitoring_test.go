package traefik

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestMistakesInMetricsAndStatusPathAreRefused(t *testing.T) {
	for _, c := range []struct {
		metrics interface{}
		status  string
		want    string
	}{
		{object{"addres": "127.0.0.1:9180"}, "", `metrics: "addres" is not a field (did you mean address?)`},
		{object{"pattern": "/x"}, "", `metrics: "pattern" is not a field; there are address, path`},
		{"127.0.0.1:9180", "", `metrics "127.0.0.1:9180": must be an object with some of address, path`},
		{object{"address": "127.0.0.1"}, "", `metrics: address "127.0.0.1": must be host:port, such as 127.0.0.1:9180`},
		{object{"address": "127.0.0.1:"}, "", `metrics: address "127.0.0.1:": the port must be from 1 to 65535`},
		{object{"address": ":0"}, "", `metrics: address ":0": the port must be from 1 to 65535`},
		{object{"address": "x:65536"}, "", `metrics: address "x:65536": the port must be from 1 to 65535`},
		{object{"address": "x:http"}, "", `metrics: address "x:http": the port must be from 1 to 65535`},
		{object{"address": "::1:9090"}, "", `metrics: address "::1:9090": must be host:port, such as 127.0.0.1:9180`},
		{object{"address": []interface{}{"a:1"}}, "", `metrics: address ["a:1"]: must be a single value`},
		{object{"path": "metrics"}, "", `metrics: path "metrics": must begin with /`},
		{object{"path": "/metrics?x"}, "", `metrics: path "/metrics?x": must be one path as it is, without ?, # and *`},
		{nil, "quota", `statusPath "quota": must begin with /`},
		{nil, "/quota/*", `statusPath "/quota/*": must be one path as it is, without ?, # and *`},
		{nil, "/my%20quota", `statusPath "/my%20quota": must be as it reads when it is decoded, without %`},
		{nil, "/100%", `statusPath "/100%": must be as it reads when it is decoded, without %`},
		{object{"path": "/x"}, "/x", `statusPath "/x": is the path of metrics; write another`},
	} {
		s := newStage(t)
		got := s.refused(&Config{Rule: Rule{Limit: "5/1m"}, Metrics: c.metrics, StatusPath: c.status}, "api@file")
		if want := `middleware "api@file": ` + c.want; got != want {
			t.Errorf("%v %q: %s, want %s", c.metrics, c.status, got, want)
		}
		must.Equal(t, len(s.listeners), 0, "a configuration that was refused has a listener")
	}
}

func TestMetricsThatNobodyCanReadAreSaidOnce(t *testing.T) {
	s := newStage(t)
	h := &Config{Rule: Rule{Limit: "5/1m"}, Metrics: object{}}
	s.made(h, "one@file")
	s.step(3 * sweepInterval)
	const advice = "one@file: metrics has neither address nor path, nor has that of another middleware"
	must.Equal(t, s.log.count(advice), 1, "the log: %s", s.log)
	s = newStage(t)
	s.made(h, "one@file")
	s.made(withMetrics(Config{Rule: Rule{Limit: "5/1m"}}), "two@file")
	s.step(3 * sweepInterval)
	if strings.Contains(s.log.String(), "metrics") {
		t.Errorf("the log: %s", s.log)
	}
}
