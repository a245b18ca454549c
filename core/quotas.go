package core

import (
	"net/http"
	"strconv"
)

// Look asks how things stand for the keys of checks, at no cost: the verdict, and which checks are rejected and for how long, are those
// of a request now, and what is told of the others is what there is before any. Shadows may be among the checks. An error is the store's,
// and nothing is known then.
//
// The store is asked twice where no rule rejects, since a decision tells what is left after the request that it is on. In between
// others may have come: each answer is right for its moment.
func (l *Limiter) Look(checks []Check, v *Verdict) error {
	if err := l.Decide(checks, true, v); err != nil {
		return err
	}
	if v.Outcome == Reject || len(checks) == 0 { // then those that would allow the request have told how things stand without it
		return nil
	}
	idle := make([]Check, len(checks))
	for i := range checks {
		idle[i].Rule = checks[i].Rule
		idle[i].Key = checks[i].Key
	}
	if err := l.store.Decide(idle, true); err != nil { // at a cost of 0
		return err
	}
	for i := range checks {
		d := &checks[i].Decision
		d.Remaining = idle[i].Decision.Remaining
		d.ResetAfter = idle[i].Decision.ResetAfter
		if checks[i].Rule.limit.algorithm == inFlight && d.Remaining < d.Limit { // which has no request of cost 0
			d.Remaining++
		}
	}
	return nil
}

// AppendQuotas appends what Look has found out to buf, as JSON for clients, and returns the extended buffer:
//
//	{"quotas":[{"name":"everyone","limit":300,"remaining":297,"reset":41}]}
//
// The numbers are those that WriteHeaders would tell: the quota, the units left, and the seconds until the quota is whole again. A rule
// that rejects the key now has retry_after, too, unless it would never let the request in. Rules that only watch are left out. Of several
// keys under one rule there is the one with the least left. There is nothing of a key in it.
func AppendQuotas(buf []byte, checks []Check, v *Verdict) []byte {
	buf = append(buf, `{"quotas":[`...)
	first := true
	for i := range checks {
		c := &checks[i]
		if c.Rule.shadow || c.Uncounted || len(checks) > 1 && repeats(checks, i, v.Told) {
			continue
		}
		if !first {
			buf = append(buf, ',')
		}
		first = false
		buf = append(buf, `{"name":"`...)
		buf = append(buf, c.Rule.Policy()...)
		buf = append(buf, `","limit":`...)
		buf = append(buf, c.Rule.limitText...)
		buf = append(buf, `,"remaining":`...)
		buf = strconv.AppendInt(buf, c.Decision.Remaining, 10)
		buf = append(buf, `,"reset":`...)
		buf = strconv.AppendInt(buf, seconds(c.Decision.ResetAfter), 10)
		if !c.Decision.Allowed && c.Decision.RetryAfter != Never {
			buf = append(buf, `,"retry_after":`...)
			buf = strconv.AppendInt(buf, RetrySeconds(c.Decision.RetryAfter), 10)
		}
		buf = append(buf, '}')
	}
	return append(buf, "]}\n"...)
}

// Policy returns what the lists of policies, of which clients are told, call the rule: its name, unless it stands beside another one.
func (r *Rule) Policy() string {
	if r.policy != "" {
		return r.policy
	}
	return r.name
}

// CoversCaller is Covers for a request that asks about the client that makes it, and not about itself: methods and paths are not looked
// at.
func CoversCaller(m *Matcher, r *http.Request, clientIP string) bool {
	caller := Matcher{hosts: m.hosts, suffixes: m.suffixes, headers: m.headers, except: m.except}
	return Covers(&caller, r, "", clientIP)
}
