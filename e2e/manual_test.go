package e2e

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/proxyweir/weir/tools/must"
)

// manualsSite serves the folder that scripts/site has made, and returns its address and the paths of its pages.
func manualsSite(t *testing.T) (string, []string) {
	t.Helper()
	folder := os.Getenv("WEIR_SITE")
	if folder == "" {
		t.Skip(`scripts/test site runs it, with the site in WEIR_SITE`)
	}
	var pages []string
	must.Succeed(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".html") {
			pages = append(pages, filepath.ToSlash(strings.TrimPrefix(path, folder)))
		}
		return err
	}))
	s := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(s.Close)
	return s.URL, pages
}

// A link to a file of the repository leads to a file that is there.
var inRepository = regexp.MustCompile(`^https://github\.com/proxyweir/weir/(?:blob|tree|edit)/main/([^?#]+)`)

func TestEveryPageOfTheManualsSiteFitsAndItsLinksLeadSomewhere(t *testing.T) {
	address, pages := manualsSite(t)
	must.Equal(t, len(pages) > 60, true, "%d pages", len(pages))
	b := open(t, address+"/index.html", [2]int64{1440, 900})
	linkedFrom, anchors := map[string]string{}, map[string][]string{}
	for _, page := range pages {
		b.do(chromedp.Navigate(address + page))
		colours := map[string]string{}
		for _, width := range []int64{390, 1440} {
			b.resize([2]int64{width, 900})
			for _, scheme := range []string{"light", "dark"} {
				b.prefers(scheme)
				colours[scheme] = js[string](b, "getComputedStyle(document.body).backgroundColor")
				// Some pages stand for all, since each takes seconds. The theme's own findings are no greater than these.
				if width == 390 && slices.Contains([]string{"/index.html", "/search.html", "/docs/rules.html", "/docs/experiment.html"}, page) {
					b.accessible(page+", "+scheme, "minor", "moderate")
				}
			}
			// Only what can be scrolled may be wider.
			wide := js[[]string](b, `[...document.querySelectorAll("article *")].filter((e) => {
				if (!e.checkVisibility() || e.getBoundingClientRect().right <= innerWidth + 0.5) return false;
				for (let p = e; p.tagName !== "ARTICLE"; p = p.parentElement) if (/auto|scroll/.test(getComputedStyle(p).overflowX) && p.getBoundingClientRect().right <= innerWidth + 0.5) return false;
				return true;
			}).slice(0, 5).map((e) => e.outerHTML.slice(0, 100)).concat(document.documentElement.scrollWidth > innerWidth ? ["all of it"] : [])`)
			must.Equal(t, strings.Join(wide, "; "), "", "%s is wider than %d", page, width)
		}
		must.Equal(t, colours["light"], "rgb(255, 255, 255)", "%s", page)
		must.Equal(t, colours["dark"] == colours["light"], false, "%s is bright in the dark", page)
		anchors[page] = js[[]string](b, `[...document.querySelectorAll("[id]")].map((e) => e.id)`)
		for _, link := range js[[]string](b, `[...document.querySelectorAll("a[href], link[href], [src]")].map((e) => e.href || e.src)`) {
			linkedFrom[link] = page
		}
	}
	for link, page := range linkedFrom {
		if file := inRepository.FindStringSubmatch(link); file != nil {
			if _, err := os.Stat("../" + file[1]); err != nil {
				t.Errorf("%s links %s: %v", page, link, err)
			}
		}
		if !strings.HasPrefix(link, address) {
			continue
		}
		target, err := url.Parse(link)
		must.Succeed(t, err)
		if ids, isPage := anchors[target.Path]; isPage {
			if target.Fragment != "" && !slices.Contains(ids, target.Fragment) {
				t.Errorf("%s links %s, and there is no such anchor", page, link)
			}
			continue
		}
		answer, err := http.Head(link)
		must.Succeed(t, err)
		must.Succeed(t, answer.Body.Close())
		must.Equal(t, answer.StatusCode, http.StatusOK, "%s links %s", page, link)
	}
}

// All pages are in the navigation, under the headings of docs/README.md.
func TestTheManualsSiteHasEveryPageInItsNavigation(t *testing.T) {
	address, pages := manualsSite(t)
	b := open(t, address+"/index.html", [2]int64{1440, 900})
	shown := js[[]string](b, `[...document.querySelectorAll(".sidebar-tree a")].map((e) => new URL(e.href).pathname)`)
	for _, page := range pages {
		if !slices.Contains([]string{"/README.html", "/index.html", "/search.html"}, page) && !slices.Contains(shown, page) {
			t.Errorf("%s is not in the navigation", page)
		}
	}
	contents, err := os.ReadFile("../docs/README.md")
	must.Succeed(t, err)
	captions := strings.Join(js[[]string](b, `[...document.querySelectorAll(".sidebar-tree .caption")].map((e) => e.textContent)`), ", ")
	for _, heading := range regexp.MustCompile(`(?m)^## (.*)`).FindAllStringSubmatch(string(contents), -1) {
		must.Contain(t, captions, heading[1])
	}
}

func TestASearchOfTheManualsSiteFindsThePageThatHasTheWord(t *testing.T) {
	address, _ := manualsSite(t)
	b := open(t, address+"/index.html", [2]int64{390, 844})
	b.click("label.nav-overlay-icon")
	b.do(chromedp.SendKeys(chromedp.CSS(".sidebar-search"), "penalty"), chromedp.KeyEvent(kb.Enter))
	found := `[...document.querySelectorAll("#search-results a")].find((e) => e.textContent === "Past the limit")`
	b.until(`location.pathname === "/search.html" && ` + found + ` !== undefined`)
	b.do(chromedp.Navigate(js[string](b, found+".href")))
	must.Equal(t, js[string](b, "location.pathname"), "/docs/past-the-limit.html")
	must.Contain(t, b.text("article"), "penalty")
}

func TestPagesOfTheManualsSiteAreForEveryone(t *testing.T) {
	address, _ := manualsSite(t)
	b := open(t, address+"/index.html", [2]int64{1440, 844})
	for _, page := range []string{"/index.html", "/docs/caddy.html", "/docs/experiment.html", "/examples/login/README.html", "/search.html?q=penalty"} {
		b.do(chromedp.Navigate(address + page))
		b.until(`!location.pathname.includes("search") || document.querySelector("#search-results a") !== null`)
		for _, l := range []look{looks[0], looks[3]} { // narrow and light, wide and dark
			b.resize(l.size)
			b.prefers(l.scheme)
			b.accessible(page+" "+l.name, "moderate", "minor")
			b.shot(strings.ReplaceAll("site"+page+" "+l.name, "/", " ") + ".png")
		}
	}
}
