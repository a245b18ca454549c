package traefik

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/memory"
)

// fewRules is the most rules of a set whose path looks at each of them.
const fewRules = 8

// mostPaths is the most paths that a set keeps.
const mostPaths = 1024

// indexed has what the path of many rules needs: it finds the few that may cover a request, and passes it on to a path of these alone, which is made
// when the first request needs it.
type indexed struct {
	handler *handler
	set     *ruleSet
	general http.Handler
	none    http.Handler // the path of requests that no rule covers
	kept    *keptPaths
}

// keptPaths has the paths that have been made.
type keptPaths struct {
	paths atomic.Value // *pathList
	mu    sync.Mutex   // of who makes one
}

// pathList has paths, by the places of the rules that they are of. It is immutable.
type pathList struct {
	single  []http.Handler          // by the place of the only rule; nil: it has not been made
	several map[string]http.Handler // by the text of several places
}

// indexedPath returns the path of a set of many rules.
func indexedPath(h *handler, s *ruleSet, metering *memory.Metering) http.Handler {
	f := &indexed{handler: h, set: s, general: generalPath(h, metering), none: withOwnPaths(h.next, metering), kept: &keptPaths{}}
	f.kept.paths.Store(&pathList{single: make([]http.Handler, len(s.rules)), several: make(map[string]http.Handler)})
	placesOf := keptPlaces(s)
	kept := f.kept
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			places []int
			path   http.Handler
		)
		places = placesOf(r)
		if len(places) == 1 {
			path = kept.paths.Load().(*pathList).single[places[0]]
		}
		if path == nil {
			path = pathOfPlaces(f, places)
		}
		path.ServeHTTP(w, r)
	})
}

// keptPlaces returns what placesFunc returns, which all routers share.
func keptPlaces(s *ruleSet) func(r *http.Request) []int {
	kept := s.shared.(*sharedParts)
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.places == nil {
		kept.places = placesFunc(s)
	}
	return kept.places
}

// placesFunc returns a function that returns the places of the rules that may cover a request, in ascending order.
func placesFunc(s *ruleSet) func(r *http.Request) []int {
	if s.own == 0 {
		return s.files.CoveringFunc()
	}
	matchers := make([]*match.Matcher, 0, s.own)
	for _, r := range s.rules[:s.own] {
		matchers = append(matchers, r.Matcher)
	}
	own := match.NewIndex(matchers)
	if s.files == nil {
		return own.CandidatesFunc()
	}
	return func(r *http.Request) []int {
		places := own.Candidates(r, nil)
		first := len(places)
		places = s.files.Covering(r, places)
		for i := first; i < len(places); i++ {
			places[i] += s.own
		}
		return places
	}
}

// pathOfPlaces returns the path of rules at some places.
func pathOfPlaces(f *indexed, places []int) http.Handler {
	if len(places) == 0 {
		return f.none
	}
	text := ""
	for _, place := range places {
		text += strconv.Itoa(place) + " "
	}
	path := f.kept.paths.Load().(*pathList).several[text]
	if path != nil {
		return path
	}
	return newPathOfPlaces(f, places, text)
}

// newPathOfPlaces makes the path of rules at some places.
func newPathOfPlaces(f *indexed, places []int, text string) http.Handler {
	part := *f.set
	part.rules = make([]*front.Rule, 0, len(places))
	for _, place := range places {
		part.rules = append(part.rules, f.set.rules[place])
	}
	if len(places) > mostServed {
		return f.general
	}
	single := -1
	if len(places) == 1 {
		single = places[0]
	}
	return keep(f.kept, single, text, f.general, func() http.Handler { return pathOfFew(f.handler, &part) })
}

// keep makes a path, and keeps it: as that of a single rule at that place; -1: by the text. If there are too many texts, it returns general.
func keep(k *keptPaths, single int, text string, general http.Handler, newPath func() http.Handler) http.Handler {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.paths.Load().(*pathList)
	if single < 0 && len(before.several) == mostPaths { // single rules have their own path whatever lists of several have come before
		return general
	}
	path := newPath()
	made := &pathList{single: before.single, several: before.several}
	if single >= 0 {
		made.single = append([]http.Handler(nil), before.single...)
		made.single[single] = path
	} else {
		made.several = make(map[string]http.Handler, len(before.several)+1)
		for other, one := range before.several {
			made.several[other] = one
		}
		made.several[text] = path
	}
	k.paths.Store(made)
	return path
}

// sharedParts are the parts of fast paths that all routers of a set of rules share. They are made when the first router needs them.
type sharedParts struct {
	mu     sync.Mutex
	served map[*core.Rule][]*memory.ServedRule // by the limit
	places func(r *http.Request) []int         // of indexedPath
}

func newSharedParts() *sharedParts {
	return &sharedParts{served: make(map[*core.Rule][]*memory.ServedRule)}
}
