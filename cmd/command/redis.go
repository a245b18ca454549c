package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/byhand"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
)

// redisState is the state of rules that count in Redis: of one middleware, or of several, each maybe in another.
type redisState struct {
	list   []*rulesOf
	places []*place
}

// place is where the rules of a middleware count, open.
type place struct {
	of       *rulesOf
	client   redis.ClientConfig
	store    *redis.Store
	set      *ruleset.Set
	domain   *ruleset.Domain // nil: there are no descriptors
	subjects []*byhand.Subject
	in       *byhand.Counters
}

// waits is how long a command waits for Redis.
const waits = 2 * time.Second

// inMemory is what there is to say of rules that count in the memory of a Traefik.
func inMemory(of *rulesOf) error {
	return fmt.Errorf("middleware %s counts in Traefik's memory, which no other program can reach: weir watch --metrics reads its metrics; write store: redis, and its state can be seen and changed", of.middleware)
}

// openRedis opens the rules of each middleware that counts in Redis. It is an error if none does.
func openRedis(list []*rulesOf, messages io.Writer) (*redisState, error) {
	s := &redisState{list: list}
	for _, of := range list {
		if of.store.Redis == nil {
			continue
		}
		p, err := openPlace(of, messages, false)
		if err != nil {
			s.close()
			return nil, err
		}
		s.places = append(s.places, p)
	}
	if len(s.places) == 0 {
		return nil, inMemory(list[0])
	}
	return s, nil
}

// openPlace opens the rules of a middleware as its proxies do. With names, what the store takes for keys are the clients' parts of the names in Redis.
func openPlace(of *rulesOf, messages io.Writer, names bool) (*place, error) {
	p := &place{of: of, client: of.store.Redis.Client}
	p.client.Timeout = max(p.client.Timeout, waits)
	p.client.ReadTimeout, p.client.Background = max(p.client.ReadTimeout, p.client.Timeout), max(p.client.Background, p.client.Timeout)
	client, err := goredis.New(p.client)
	if err != nil {
		return nil, err
	}
	c := of.store.Redis.Store
	c.Client = client
	if names {
		c.PlainKeys, c.KeySecret = true, ""
	}
	if p.store, err = redis.NewStore(c); err != nil {
		_ = client.Close()
		return nil, err
	}
	if err = p.store.Check(waits); err == nil {
		err = p.begin(messages, names)
	}
	if err != nil {
		_ = p.store.CloseNow()
		return nil, fmt.Errorf("the Redis at %s: %w", client.Name(), err)
	}
	return p, nil
}

// begin opens the rules, and puts in force what people have decided for single keys, unless what are taken for keys are names.
func (p *place) begin(messages io.Writer, names bool) error {
	var err error
	if p.set, err = ruleset.NewSet(p.of.files, p.of.namespace); err != nil { // since rules are open in one store at a time
		return err
	}
	if p.of.domain != nil {
		if p.domain, err = p.set.Domain(p.of.domain.Name()); err != nil {
			return err
		}
	}
	limiter := core.NewLimiter(p.store)
	limiter.InRegion(p.of.store.Redis.Regions.Part())
	table := excepted.NewTable(redis.Exceptions(p.store), func() int64 { return time.Now().UnixMicro() }, func(err error) {
		if err != nil {
			_, _ = fmt.Fprintln(messages, "warning: what people have decided for single keys cannot be read:", err)
		}
	})
	p.in = &byhand.Counters{Limiter: limiter, Exceptions: table, InRedis: true}
	add := func(s byhand.Subject) {
		s.Namespace, s.Label, s.In = p.of.namespace, metrics.LabelOf(p.of.namespace, s.Name), p.in
		p.subjects = append(p.subjects, &s)
	}
	i := 0
	for _, f := range p.set.Files {
		for j := range f.Rules {
			add(byhand.SubjectOf(p.set.Rules[i], &f.Rules[j].RuleText))
			i++
		}
	}
	for _, d := range p.set.Domains {
		for i := range d.Rules() {
			add(byhand.SubjectOfDescriptor(d, i, p.of.namespace, true))
		}
	}
	var rules []*core.Rule
	waiting := slices.ContainsFunc(p.set.Rules, func(r *ruleset.Rule) bool { return r.Limits.Delays() })
	for _, s := range p.subjects {
		for _, r := range s.Rules {
			if waiting {
				r.TrackReservations()
			}
			rules = append(rules, r)
		}
	}
	if failed, err := limiter.OpenAll(rules); err != nil {
		return fmt.Errorf("rule %q: %w", failed.Name(), err)
	}
	if names {
		return nil
	}
	group := &excepted.Group{Limiter: limiter, Rules: p.set.Rules, Domains: p.set.Domains, Label: func(name string) string { return metrics.LabelOf(p.of.namespace, name) },
		Forget: func(r *core.Rule, key string) { p.store.Forget(r, key) }}
	table.Attach(group)
	table.Tick()
	return nil
}

// close closes all stores.
func (s *redisState) close() {
	for _, p := range s.places {
		_ = p.store.CloseNow()
	}
}

// find returns the rule of that label.
func (s *redisState) find(label string) (*place, *byhand.Subject, error) {
	var all []string
	for _, p := range s.places {
		for _, one := range p.subjects {
			if one.Label == label {
				return p, one, nil
			}
			all = append(all, one.Label)
		}
	}
	for _, of := range s.list {
		if of.store.Redis == nil && strings.HasPrefix(label, of.namespace+"/") {
			return nil, nil, inMemory(of)
		}
	}
	hint := "there are " + strings.Join(all[:min(len(all), 20)], ", ")
	if near := words.Nearest(label, all); near != "" {
		hint = "did you mean " + near + "?"
	}
	return nil, nil, fmt.Errorf("rule %q: there is none of that name (%s)", label, hint)
}

// counted says why Redis does not know what is counted under limits; nil: it does.
func counted(limits []*core.Rule) error {
	for _, r := range limits {
		if r.SyncTerms() != nil {
			return fmt.Errorf("rule %q: has consistency eventual, so that each proxy counts by itself, and Redis has only what they tell each other; ask the proxies", r.Name())
		}
	}
	return nil
}

// act implements state.
func (s *redisState) act(do string, a *action) (*acted, error) {
	d := byhand.Decision{Note: a.Note, By: a.By}
	if err := d.Check(); err != nil {
		return nil, err
	}
	if a.ID != "" {
		return nil, errors.New("--id: is of a Caddy, which knows the keys that top shows; in Redis name the key by --key")
	}
	_, rule, err := s.find(a.Rule)
	if err != nil {
		return nil, err
	}
	key, err := rule.Keys.Of(a.Key)
	if err != nil {
		return nil, err
	}
	if do == "reset" || do == "credit" {
		if err := counted(rule.Rules); err != nil {
			return nil, err
		}
	}
	done, until, changed := new(acted), int64(0), false
	if do == "limit" || do == "block" {
		if until, err = rule.Until(a.Until, a.For); err != nil {
			return nil, err
		}
		if at := time.UnixMicro(until).UTC(); a.Until != "" || do == "limit" {
			done.Until = &at
		}
	}
	switch do {
	case "limit":
		return done, rule.Limit(key, a.Limit, until, d)
	case "block":
		_, err = rule.Block(key, until, d)
		return done, err
	case "credit":
		given, err := rule.Credit(key, a.Units)
		done.Given = &given
		return done, err
	case "end":
		changed, err = rule.End(key)
	case "unblock":
		changed, err = rule.Unblock(key)
	case "reset":
		changed, err = rule.Reset(key)
	}
	done.Keys = new(int)
	if changed {
		*done.Keys = 1
	}
	return done, err
}

// exceptions implements state.
func (s *redisState) exceptions(rule string) (list []exceptionRow, err error) {
	shown := make(map[string]describe.KeyForm)
	for _, p := range s.places {
		for _, one := range p.subjects {
			shown[one.Label] = one.Keys
		}
	}
	var all []exception.Exception
	for _, p := range s.places {
		for _, e := range p.in.Exceptions.List() {
			if (rule == "" || e.Rule == rule) && exception.Find(all, e.Kind, e.Rule, string(e.Key)) == nil { // which several middlewares may share
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b exception.Exception) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), cmp.Compare(a.Until, b.Until), strings.Compare(string(a.Key), string(b.Key)))
	})
	for _, e := range all {
		row := exceptionRow{Rule: e.Rule, Kind: e.Kind, Limit: e.Limit, Note: e.Note, By: e.By, Until: time.UnixMicro(e.Until).UTC(), Key: []string{describe.Shortened(string(e.Key))}}
		if form, ours := shown[e.Rule]; ours {
			row.Key = form.Show(string(e.Key))
		}
		list = append(list, row)
	}
	return list, nil
}

// explain implements state.
func (s *redisState) explain(q *question) (*explained, error) {
	address := match.ReadAddress(q.ClientIP)
	if !address.IsValid() {
		return nil, fmt.Errorf("--ip %q: must be an address, such as 192.0.2.7", q.ClientIP)
	}
	r, err := http.NewRequest(cmp.Or(q.Method, http.MethodGet), q.URL, nil)
	if err != nil || r.URL.Host == "" {
		return nil, errors.New("--url: must be whole, such as https://example.com/login")
	}
	for name, value := range q.Headers {
		r.Header.Set(name, value)
	}
	r.RemoteAddr = address.String() + ":40000"
	r.Host = cmp.Or(r.Header.Get("Host"), r.Host)
	answer := &explained{}
	for _, p := range s.places {
		for _, rule := range p.subjects {
			if err := counted(rule.Rules); err != nil {
				answer.Notes = append(answer.Notes, err.Error())
			}
		}
		one, err := p.explain(r, address.String())
		if err != nil {
			return nil, err
		}
		answer.Handlers = append(answer.Handlers, *one)
	}
	for _, of := range s.list {
		if of.store.Redis == nil {
			answer.Notes = append(answer.Notes, inMemory(of).Error())
		}
	}
	return answer, nil
}

// explain decides on a request by the rules of one place, without charging it.
func (p *place) explain(r *http.Request, address string) (*explainedHandler, error) {
	var rules []*front.Rule
	for _, one := range p.set.Rules {
		rules = append(rules, front.NewRule(one))
	}
	var descriptors []front.Descriptor
	if p.of.settings != nil {
		descriptors = p.of.settings.Descriptors
	}
	var q front.Evaluation
	if err := front.Assemble(front.NewSet(rules, nil, nil, p.domain, descriptors), &q, r, address); err != nil {
		return nil, err
	}
	h := &explainedHandler{Name: p.of.middleware}
	if len(q.Checks) > 0 {
		if err := p.in.Decide(q.Checks, true, &q.Verdict); err != nil {
			return nil, err
		}
	}
	h.Verdict, h.Delay = q.Verdict.Outcome.String(), float64(q.Verdict.Delay)/1e6
	for i := range q.Checks {
		for _, c := range append([]core.Check{q.Checks[i]}, q.Checks[i].Parts()...) {
			i := slices.IndexFunc(p.subjects, func(s *byhand.Subject) bool { return s.Name == c.Rule.Name() })
			h.Rules = append(h.Rules, p.subjects[i].Coverage(p.in.Limiter, &c, &q.Verdict))
		}
	}
	return h, nil
}
