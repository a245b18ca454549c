package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The page of a site has no actions, since the API beside it takes no POST. The console must have no message, so every request succeeds.
func TestThePageOfASiteShowsWhatThereIsAndNoActions(t *testing.T) {
	c := startCaddy(t, `rate_limit_page
	rate_limit /up 1000/1h
	respond /up ok`)
	b := open(t, "http://"+c.addr+"/rate_limit", desktop)
	b.says("#list-title", "1 rule")
	b.click("#rules h3 button")
	b.until("document.querySelectorAll('.look input').length === 1")
	b.do(chromedp.SendKeys(chromedp.CSS(".look input"), "192.0.2.7"), chromedp.KeyEvent(kb.Enter))
	b.says("#key-state", "1,000 of 1,000")
	b.click("#key-close")
	b.until("document.querySelector('.by-requests button.key') !== null")
	b.click(".by-requests button.key") // named by its id
	b.says("#key-state", "of 1,000")
	if shown := js[string](b, "[...document.querySelectorAll('[data-do], #explain, .freeze, .revert')].filter((e) => e.checkVisibility()).map((e) => e.outerHTML).join()"); shown != "" {
		t.Errorf("it shows %s", shown)
	}
}
