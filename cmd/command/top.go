package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/byhand"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis/goredis"
)

func (p *Program) topCommand() *cobra.Command {
	var rule, by string
	var n int
	cmd := &cobra.Command{
		Use:   "top --rule <rule> [--by requests|rejections] [-n <keys>] [--address <admin address> | --traefik <file> | --rules <file> --redis <address>]",
		Short: "Lists the keys of a rule that use it most",
		Long: `
Of a running Caddy it lists the keys that have sent most requests of late, or had most rejected; of Redis those with the largest used part of the limit, and looks at 100,000
keys of the rule at most. Keys in Redis are hashes, which nobody can read back, unless the store has plainKeys (plain_keys in Caddy).`,
		Example: p.examples("top --rule api.file/logins --traefik /etc/traefik/dynamic.yml"),
		Args:    cobra.NoArgs,
	}
	s := p.addState(cmd)
	cmd.Flags().StringVar(&rule, "rule", "", "Name of the rule, with its namespace")
	cmd.Flags().StringVar(&by, "by", "", "Of a Caddy: requests, the default, or rejections")
	cmd.Flags().IntVarP(&n, "number", "n", 10, "How many keys")
	_ = cmd.MarkFlagRequired("rule") // it exists
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if n < 1 {
			return fmt.Errorf("-n %d: must be how many keys are wanted, 1 or more", n)
		}
		from, closing, err := s.open(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer closing()
		table, notes, err := from.top(rule, by, n)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		for _, row := range table {
			_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) // Flush has the error
		}
		for _, note := range notes {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), note)
		}
		return w.Flush()
	}
	return cmd
}

const (
	mostLookedAt = 100_000 // keys of a rule
	askedAtOnce  = 64      // of them
)

var errEnough = errors.New("enough")

// used is how a key in Redis stands.
type used struct {
	client string // its part of the name
	rule   *core.Rule
	rate.Decision
}

// share is the used part of the limit.
func (u *used) share() float64 { return float64(u.Limit-u.Remaining) / float64(max(u.Limit, 1)) }

// top implements state.
func (s *redisState) top(label, by string, n int) (table [][]string, notes []string, err error) {
	if by != "" {
		return nil, nil, errors.New("--by: Redis knows what is used of limits, and not who has sent or been rejected most; leave it out")
	}
	p, rule, err := s.find(label)
	if err != nil {
		return nil, nil, err
	}
	at := slices.Index(p.subjects, rule)
	if p, err = openPlace(p.of, io.Discard, true); err != nil {
		return nil, nil, err
	}
	s.places = append(s.places, p) // which close closes
	rule = p.subjects[at]
	if err := counted(rule.Rules); err != nil {
		return nil, nil, err
	}
	var all []*used
	seen := make(map[string]bool)
	for _, r := range rule.Rules {
		if seen[r.Identity] || r.Limit.InFlight {
			continue
		}
		seen[r.Identity] = true
		pattern, before, behind := p.store.NamesOf(r)
		err := goredis.Names(context.Background(), p.client, pattern, func(names []string) error {
			for _, name := range names {
				client, _, found := strings.Cut(strings.TrimPrefix(name, before), behind)
				if !found || seen[r.Identity+client] {
					continue
				}
				if len(all) == mostLookedAt {
					return errEnough
				}
				seen[r.Identity+client] = true
				all = append(all, &used{client: client, rule: r})
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			notes = append(notes, fmt.Sprintf("there are more than %d keys, of which these are the first that Redis has named", mostLookedAt))
		} else if err != nil {
			return nil, nil, err
		}
	}
	if err := p.ask(all); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, func(a, b *used) int {
		return cmp.Or(cmp.Compare(b.share(), a.share()), strings.Compare(a.client, b.client))
	})
	table = [][]string{{"KEY", "LIMIT", "REMAINING", "USED"}}
	for _, u := range all[:min(n, len(all))] {
		name := u.client
		if p.of.store.Redis.Store.PlainKeys {
			name = strings.Join(rule.Keys.Show(keyIn(u.client)), " ")
		}
		table = append(table, []string{name, u.rule.Limit.String(), strconv.FormatInt(u.Remaining, 10), strconv.FormatFloat(100*u.share(), 'f', 0, 64) + " %"})
	}
	if slices.ContainsFunc(rule.Limits, func(l byhand.NamedLimit) bool { return l.Tier }) {
		notes = append(notes, "LIMIT is of one tier, and USED is of that: which tier a key has, Redis does not know; explain says it of a request")
	}
	if slices.ContainsFunc(rule.Limits, func(l byhand.NamedLimit) bool { return !l.Tier }) {
		notes = append(notes, "keys with a limit of their own are shown by the rule's; explain says theirs")
	}
	if !p.of.store.Redis.Store.PlainKeys {
		notes = append(notes, "keys are hashes of what clients have; with plainKeys in the store's settings (plain_keys in Caddy) they can be read")
	}
	return table, notes, nil
}

// keyIn returns the key that a plain name in Redis has.
func keyIn(client string) string {
	if client == "%" {
		return ""
	}
	if key, err := url.PathUnescape(client); err == nil {
		return key
	}
	return client // of more than 256 bytes, it is a hash
}

// ask fills in how keys stand, many at once. The error is the first of them.
func (p *place) ask(all []*used) error {
	var turn sync.WaitGroup
	failures := make(chan error, askedAtOnce)
	for i := range askedAtOnce {
		turn.Go(func() {
			for ; i < len(all); i += askedAtOnce {
				d, err := p.in.Standing(all[i].rule, keyIn(all[i].client))
				if err != nil {
					failures <- err
					return
				}
				all[i].Decision = d
			}
		})
	}
	turn.Wait()
	close(failures)
	return <-failures
}
