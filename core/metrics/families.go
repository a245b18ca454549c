// Package metrics has the families of Weir's metrics, each once, and makes their series of what rules, guards and advice are at. Caddy makes
// collectors of a Page, and the plugin for Traefik writes it as text.
package metrics

import (
	"strconv"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/pressure"
)

// Family is a metric with all of its series.
type Family struct {
	Name   string
	Kind   string // "counter", "gauge" or "histogram"
	Help   string
	Labels []Label
	Caddy  bool // Traefik has nothing of the kind
}

// Label is a label of a family's series.
type Label struct {
	Name   string
	Values []string // those that Weir itself gives it; nil: they depend on the configuration
}

// Families are all families, in the order in which pages have them.
var Families []*Family

func family(kind, name, help string, labels []Label) *Family {
	f := &Family{Name: name, Kind: kind, Help: help, Labels: labels}
	Families = append(Families, f)
	return f
}

func counter(name, help string, labels ...Label) *Family {
	return family("counter", name, help, labels)
}

func gauge(name, help string, labels ...Label) *Family { return family("gauge", name, help, labels) }

func histogram(name, help string, labels ...Label) *Family {
	return family("histogram", name, help, labels)
}

// inCaddy says that Caddy alone has a family.
func inCaddy(f *Family) *Family {
	f.Caddy = true
	return f
}

// Labels of several families.
var (
	ofRule    = Label{Name: "rule"}
	ofGuard   = Label{Name: "guard"}
	ofStorage = Label{Name: "storage"}
	ofRegion  = Label{Name: "region"}
	decisions = []string{"allowed", "rejected"}
	turned    = Label{"reason", front.GuardReasons}
)

// The families of rules and stores.
var (
	Requests   = counter("weir_requests_total", "Requests that a rule covered, by outcome.", ofRule, Label{"outcome", front.OutcomeNames})
	Candidates = counter("weir_candidate_decisions_total", "Requests that a rule with a candidate covered, by the decisions of its limit and of the candidate.",
		ofRule, Label{"limit", decisions}, Label{"candidate", decisions})
	Penalties = counter("weir_penalties_total", "Keys that were blocked for exceeding a rule's limit.", ofRule)
	Measured  = counter("weir_response_costs_total",
		"Responses that say what their requests have cost: read; missing if a response did not say it, or could not be read; cut if it was more than cost_max.",
		ofRule, Label{"outcome", []string{"read", "missing", "cut"}})
	MeasuredUnits = counter("weir_response_units_total", "Units that requests were charged by their responses.", ofRule)
	Brought       = counter("weir_request_limits_total",
		"Limits that requests have brought and that were not taken as they were: malformed, above the limit_from max, or crowded if there were too many different ones.",
		ofRule, Label{"outcome", []string{"malformed", "above", "crowded"}})
	Waiting      = gauge("weir_waiting", "Requests that wait now until a rule's limit admits them.", ofRule)
	Limit        = gauge("weir_limit", "Requests that a rule's own limit allows a key in a period, or that may be under way at a time.", ofRule)
	Configured   = gauge("weir_limit_configured", "The same as weir_limit, as the configuration has it, whatever advice has made of it.", ofRule)
	Period       = gauge("weir_limit_period_seconds", "The period of a rule's own limit; of the calendar, the day, week or month that it is.", ofRule)
	DecisionTime = histogram("weir_decision_duration_seconds",
		"How long the decision on a request took, by the store that its rules count in. Traefik times one decision in "+strconv.Itoa(memory.TimedShare)+": the proportions are those of all.",
		Label{"store", []string{"memory", "redis", "storage"}})
	StoreErrors = counter("weir_store_errors_total", "Decisions that the store failed to make, by cause: timeout, connection, reply, or unavailable if its circuit breaker was open.",
		Label{"kind", []string{"timeout", "connection", "reply", "unavailable"}})
	BreakerOpen   = gauge("weir_breaker_open", "Whether the circuit breaker of a Redis server is open, so that it gets no requests: 1, or 0 if it is closed.", Label{Name: "server"})
	LeaseUnits    = gauge("weir_lease_units", "Units of a rule's limit that this proxy holds now, and may spend without asking Redis.", ofRule)
	LeaseRequests = counter("weir_lease_requests_total",
		"Requests under rules with consistency lease: held if this proxy had the units, rejected if the limit had been used up a moment before, asked if Redis decided.",
		Label{"outcome", []string{"held", "rejected", "asked"}})
	LeaseCalls = counter("weir_lease_calls_total",
		"Calls to Redis about leases: granted, refused if too few units were free, returned if units were given back, failed if there was no answer.",
		Label{"outcome", []string{"granted", "refused", "returned", "failed"}})
	SyncAge       = gauge("weir_sync_age_seconds", "For how long the oldest request under a rule with consistency eventual has waited to be synchronised through Redis; 0: there is none.")
	RegionCourier = gauge("weir_region_courier", "Whether this proxy carries what its region and others tell each other: 1, or 0 if another one does.")
	RegionsDiffer = gauge("weir_regions_differ", "Whether the settings of regions contradict each other, as the log says: 1, or 0 if they agree as far as they hear each other.")
	RegionAge     = gauge("weir_region_age_seconds", "How long ago another region was last heard, by the proxy that carries.", ofRegion)
	RegionCut     = gauge("weir_region_cut", "Whether another region is cut off, so that this one keeps to its share: 1 or 0, by the proxy that carries.", ofRegion)
	RegionUnits   = gauge("weir_region_unheard_units", "The most units that one key was probably admitted in another region and is not known of here yet.", ofRegion)
	RegionClock   = gauge("weir_region_clock_seconds", "How far the clock of another region's Redis is ahead of this region's.", ofRegion)

	Keys      = gauge("weir_keys", "Keys of a rule in this process's memory.", ofRule)
	MaxKeys   = gauge("weir_max_keys", "Keys that this process's memory may hold, over all rules.")
	Evictions = counter("weir_evictions_total", "Keys that were evicted from memory while they still counted, since it was full.")
)

// The families of stores over a storage.
var (
	StorageInstances = inCaddy(gauge("weir_storage_instances", "Other Caddys whose counts are in the storage, by whether they can be read.",
		ofStorage, Label{"state", []string{"readable", "damaged"}}))
	StorageRounds = inCaddy(counter("weir_storage_rounds_total", "How often counts were written to the storage or read from it, by outcome.",
		ofStorage, Label{"round", []string{"write", "read"}}, Label{"outcome", []string{"ok", "failed"}}))
	StorageAge    = inCaddy(gauge("weir_storage_age_seconds", "For how long the oldest admission has waited to be told over the storage; 0: there is none.", ofStorage))
	StorageUntold = inCaddy(counter("weir_storage_untold_total", "Units that were admitted and are told to no other Caddy, since too many keys are in use.", ofStorage))
	StorageKeys   = inCaddy(gauge("weir_storage_keys", "Keys in the memory of a store over a storage: those that this Caddy was asked for.", ofStorage))
)

// The families of deferral. The numbers of a queue are those of Redis: every node reports the same. Only refused requests are counted by each node.
var (
	DeferredJobs = inCaddy(gauge("weir_deferred_jobs", "Deferred requests that wait, run, or could not be done and are kept (dead), over all nodes.",
		ofRule, Label{"state", []string{"waiting", "running", "dead"}}))
	DeferredOldest = inCaddy(gauge("weir_deferred_oldest_seconds",
		"How long ago the oldest deferred request that waits or runs was accepted; 0 if there is none. The same on all nodes.", ofRule))
	DeferredMaxWait   = inCaddy(gauge("weir_deferred_max_wait_seconds", "The longest that a deferred request may have to wait, as expected when it is accepted.", ofRule))
	DeferredMaxJobs   = inCaddy(gauge("weir_deferred_max_jobs", "Deferred requests that may wait or run, over all nodes.", ofRule))
	DeferredBytes     = inCaddy(gauge("weir_deferred_bytes", "Bytes that deferred requests and their results count for, over all nodes.", ofRule))
	DeferredMaxBytes  = inCaddy(gauge("weir_deferred_max_bytes", "Bytes that deferred requests and their results may count for, over all nodes.", ofRule))
	DeferredAccepting = inCaddy(gauge("weir_deferred_accepting",
		"Whether requests are deferred: 1, or 0 if Redis may lose them or does not answer, or an operator drains the queue.", ofRule))
	Deferred = inCaddy(counter("weir_deferred_total",
		"Deferred requests since the queue is in use, by what became of them: accepted, then done, dead or cancelled. Over all nodes.",
		ofRule, Label{"outcome", []string{"accepted", "done", "dead", "cancelled"}}))
	DeferredAttempts = inCaddy(counter("weir_deferred_attempts_total", "Attempts at deferred requests, over all nodes.", ofRule))
	DeferredRetaken  = inCaddy(counter("weir_deferred_retaken_total",
		"Deferred requests whose node stood still or died while it did them, so that another does them again. Over all nodes.", ofRule))
	DeferredRefused = inCaddy(counter("weir_deferred_refused_total",
		"Requests over the limit that could have been deferred and were rejected, by reason: jobs, key, bytes (no room), wait (max_wait), drain, unsafe (Redis may lose it), or store (Redis did not answer).",
		ofRule, Label{"reason", []string{"jobs", "key", "bytes", "drain", "unsafe", "wait", "store"}}))
)

// The families of rule files: whether the rules in force are those of the files on disk.
var (
	RulesSuccessful = inCaddy(gauge("weir_rules_last_reload_successful",
		"Whether the rule files as last read are in force: 1, or 0 if they were refused and the previous rules stay in force."))
	RulesLoaded  = inCaddy(gauge("weir_rules_last_reload_success_timestamp_seconds", "When rule files were last put in force, in seconds since the Unix epoch."))
	RulesReloads = inCaddy(counter("weir_rules_reloads_total", "Changes of rule files, by outcome: taken or refused.", Label{"outcome", []string{"taken", "refused"}}))
)

// The families of advice.
var (
	AdviceAge     = gauge("weir_advice_age_seconds", "How long ago the document of advice that was taken last was issued.")
	AdviceSerial  = gauge("weir_advice_serial", "The serial of the document of advice that was taken last.")
	AdviceApplied = gauge("weir_advice_applied", "Whether the limit of an adaptable rule in force is another than the configured one: 1, or 0 if it is that.", ofRule)
	AdvicePolls   = counter("weir_advice_polls_total", "How often this proxy asked the advisor.")
	AdviceRefused = counter("weir_advice_refused_total", "Documents of advice that were refused or did not come, by reason.", Label{"reason", advice.Reasons})
	AdviceClamped = counter("weir_advice_clamped_total", "Documents of advice that a gate cut, by rule and kind.", ofRule, Label{"kind", advice.ClampKinds})
)

// The families of guards, and of what a guard knows of a rule.
var (
	GuardLimit    = gauge("weir_guard_limit", "How many requests may be under way to the service.", ofGuard)
	GuardUnderWay = gauge("weir_guard_under_way", "Requests that the service has not begun to answer.", ofGuard)
	GuardBaseline = gauge("weir_guard_baseline_seconds", "How long the service takes to begin an answer while it keeps up; 0 if it is not known yet.", ofGuard)
	GuardFair     = gauge("weir_guard_fair_share", "Requests in 10 seconds of one key beyond which a part of the limit is closed to it; 0 if there is room for all.", ofGuard)
	GuardRejected = counter("weir_guard_rejected_total",
		"Requests that the guard rejected, by reason: full if the limit was reached, unfair if the key asked for more than its fair share, tightened if it asked for more than any key over a day.",
		ofGuard, turned)
	GuardShadowRejected = counter("weir_guard_shadow_rejected_total", "Requests that the guard would have rejected, by reason, while it was a shadow.", ofGuard, turned)

	Pressure         = gauge("weir_guard_pressure", "How busy the service is by another sign; only while that is known.", ofGuard)
	PressureHigh     = gauge("weir_guard_pressure_high", "1 while the pressure is high, else 0.", ofGuard)
	PressureActs     = gauge("weir_guard_pressure_acts", "1 while the pressure has a part in the guard's limit, else 0.", ofGuard)
	PressureFailures = counter("weir_guard_pressure_failures_total",
		"Questions for the pressure that brought no value, by reason: unreachable without an answer in time, status if it was not 200, invalid without a finite number, series if the query returned none or several.",
		ofGuard, Label{"reason", pressure.Reasons})

	KeyDemand    = histogram("weir_key_demand", "Requests of one key in 10 seconds, rejected ones included.", ofGuard, ofRule)
	ActiveKeys   = gauge("weir_active_keys", "Keys with a request in the last 10 seconds that are over.", ofGuard, ofRule)
	RejectedKeys = gauge("weir_rejected_keys", "Keys with a rejected request in the last 10 seconds that are over.", ofGuard, ofRule)
	TopKeys      = gauge("weir_top_keys_share", "The part of the requests of the last 10 seconds that are over that the keys with the most made, from 0 to 1.",
		ofGuard, ofRule, Label{"keys", []string{"1", "10"}})
	FirstByte   = histogram("weir_time_to_first_byte_seconds", "How long the service took to begin its answers.", ofGuard, ofRule)
	UsualDemand = gauge("weir_key_demand_usual", "Requests in 10 seconds that, over a day, the given part of the keys does not exceed; 0 if it is not known yet.",
		ofGuard, ofRule, Label{"share", []string{"0.99", "0.9999"}})
	TightenedLimit = gauge("weir_guard_tightened_limit", "Requests in 10 seconds that keys get that ask for more than any key over a day; 0 if they are not limited.", ofGuard, ofRule)
)
