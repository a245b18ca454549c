package command

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/traefik/config"
)

// state is where rules count: in a running Caddy, by its admin endpoint, or in a Redis.
type state interface {
	// act does something to a key: limit, end, block, unblock, reset or credit.
	act(do string, a *action) (*acted, error)

	// exceptions returns what people have decided, of one rule or of all.
	exceptions(rule string) ([]exceptionRow, error)

	// explain says what would become of a request.
	explain(q *question) (*explained, error)

	// top returns a table of the keys of a rule that have the most: requests or rejections of late, or the used part of the limit. notes say how to read it.
	top(rule, by string, n int) (table [][]string, notes []string, err error)
}

// action is what somebody wants to be done to a key. Its JSON is that of the admin API.
type action struct {
	Rule  string   `json:"rule"`
	Key   []string `json:"key"`
	ID    string   `json:"id,omitempty"`
	Note  string   `json:"note"`
	By    string   `json:"by"`
	Until string   `json:"until,omitempty"`
	For   string   `json:"for,omitempty"`
	Limit string   `json:"limit,omitempty"`
	Units int64    `json:"units,omitempty"`
}

// acted is what was done. Fields are nil where the action has none.
type acted struct {
	Until   *time.Time `json:"until"`
	Passing bool       `json:"until_restart"`
	Keys    *int       `json:"keys"`
	Given   *int64     `json:"given"`
}

// exceptionRow is what somebody has decided.
type exceptionRow struct {
	Rule, Kind, Limit, Note, By string
	Key                         []string
	Until                       time.Time
}

// stateFlags say where the state is. Its fields are flags.
type stateFlags struct {
	source
	endpoint      Endpoint
	redis, prefix string
	plainKeys     bool
}

func (p *Program) addState(cmd *cobra.Command) *stateFlags {
	s := &stateFlags{endpoint: Endpoint{Program: p}}
	s.add(cmd)
	s.endpoint.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&s.redis, "redis", "", "Address of the Redis that the rules of --rules count in, such as localhost:6379; user, password and key secret are WEIR_REDIS_USERNAME, WEIR_REDIS_PASSWORD and WEIR_KEY_SECRET in the environment")
	flags.StringVar(&s.prefix, "prefix", "", "Prefix of the keys in it; the default is "+redis.DefaultPrefix)
	flags.StringVar(&s.namespace, "namespace", "", "Namespace of the rules of --rules, if their proxy sets one")
	flags.BoolVar(&s.plainKeys, "plain-keys", false, "The proxies of that Redis have plain_keys")
	return s
}

// open returns the state: the admin endpoint, unless the flags name rules that count in a Redis. The caller calls close in the end.
func (s *stateFlags) open(messages io.Writer) (of state, closing func(), err error) {
	if s.traefik == "" && s.redis == "" && len(s.rules) == 0 {
		return &s.endpoint, func() {}, nil
	}
	if s.endpoint.address != "" || s.endpoint.config != "" {
		return nil, nil, errors.New("--address and --config are of a Caddy, whose admin endpoint knows its rules; leave out --rules, --traefik and --redis")
	}
	if (s.redis == "") != (len(s.rules) == 0) {
		return nil, nil, errors.New("--rules says which rules there are, and --redis where they count: write both, or --traefik, which has both")
	}
	list, err := s.load(messages, io.Discard) // check has the warnings
	if err != nil {
		return nil, nil, err
	}
	if s.redis != "" {
		own := &config.RedisSettings{Store: redis.Config{Prefix: s.prefix, KeySecret: os.Getenv("WEIR_KEY_SECRET"), PlainKeys: s.plainKeys}}
		own.Client = redis.ClientConfig{Addresses: []string{s.redis}, Username: os.Getenv("WEIR_REDIS_USERNAME"), Password: os.Getenv("WEIR_REDIS_PASSWORD")}
		list[0].store.Redis = own
	}
	r, err := openRedis(list, messages)
	if err != nil {
		return nil, nil, err
	}
	return r, r.close, nil
}

// act implements state.
func (e *Endpoint) act(do string, a *action) (*acted, error) {
	done := new(acted)
	return done, e.Ask(http.MethodPost, do, a, done)
}

// exceptions implements state.
func (e *Endpoint) exceptions(rule string) (list []exceptionRow, err error) {
	for total := 1; len(list) < total; {
		query := url.Values{"from": {strconv.Itoa(len(list))}, "n": {"1000"}}
		if rule != "" {
			query.Set("rule", rule)
		}
		var answer struct {
			Total      int
			Exceptions []exceptionRow
		}
		if err := e.Ask(http.MethodGet, "exceptions?"+query.Encode(), nil, &answer); err != nil {
			return nil, err
		}
		if list = append(list, answer.Exceptions...); len(answer.Exceptions) == 0 {
			break
		}
		total = answer.Total
	}
	return list, nil
}

// explain implements state.
func (e *Endpoint) explain(q *question) (*explained, error) {
	answer := new(explained)
	return answer, e.Ask(http.MethodPost, "explain", q, answer)
}

// top implements state.
func (e *Endpoint) top(rule, by string, n int) (table [][]string, notes []string, err error) {
	var answer struct {
		Window int `json:"window_seconds"`
		Keys   []struct {
			Key                         []string
			ID                          string
			Requests, Rejections, Error uint64
		}
	}
	query := url.Values{"rule": {rule}, "by": {cmp.Or(by, "requests")}, "n": {strconv.Itoa(n)}}
	if err := e.Ask(http.MethodGet, "top?"+query.Encode(), nil, &answer); err != nil {
		return nil, nil, err
	}
	table = [][]string{{"KEY", "REQUESTS", "REJECTIONS", "TOO HIGH BY AT MOST", "ID"}}
	for _, k := range answer.Keys {
		table = append(table, []string{strings.Join(k.Key, " "), strconv.FormatUint(k.Requests, 10), strconv.FormatUint(k.Rejections, 10), strconv.FormatUint(k.Error, 10), k.ID})
	}
	return table, []string{"of the last " + (time.Duration(answer.Window) * time.Second).String() + " at most, in this Caddy"}, nil
}
