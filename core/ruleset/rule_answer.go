package ruleset

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/words"
)

// mostAnswered is the most bytes of a file that is an answer.
const mostAnswered = 256 << 10

// placeholders are what may stand in a text for a value of the request.
var placeholders = regexp.MustCompile(`\{[^{}]*\}`)

// setAnswer reads what requests are answered with that the rule rejects. The file is not read: see ReadAnswer.
func (c *compiler) setAnswer(config *core.RuleConfig) {
	o := One(c.text, "answer")
	if o == nil {
		return
	}
	var s Settings
	a := &core.Answer{Type: o.Texts["type"], Body: o.Texts["body"], File: o.Texts["file"], Location: o.Texts["redirect"]}
	status := FieldOf("answer", "status")
	a.Status = int(s.Number("status", o.Texts["status"], status.Least, status.Most, 0)) // of which checkAnswer takes fewer
	a.Close = s.Truth("close", o.Texts["close"])
	err := s.Err
	if err == nil {
		err = checkAnswer(a, o, c.text.Texts["message"] != "")
	}
	if err != nil {
		c.failIn("answer", "", words.Of(err))
		return
	}
	if a.Status == 0 && a.Location != "" {
		a.Status = http.StatusFound
	} else if a.Status == 0 {
		a.Status = http.StatusTooManyRequests
	}
	config.Answer = a
	c.rule.answer = a
}

// checkAnswer says what is wrong with an answer. beside says that the rule has a message, too.
func checkAnswer(a *core.Answer, o *Object, beside bool) error {
	if len(o.Texts) == 0 {
		return words.Wrong("", "", "is empty; write some of %s, or leave it out", strings.Join(fieldNames["answer"], ", "))
	}
	var written []string
	for _, one := range []string{"body", "file", "redirect"} {
		if o.Texts[one] != "" {
			written = append(written, one)
		}
	}
	if len(written) > 0 && beside {
		written = append(written, "message")
	}
	if len(written) > 1 {
		return words.Wrong(written[0], "", " and %s are mutually exclusive: an answer has one text, or redirects; remove one", written[1])
	}
	moves := a.Status == http.StatusFound || a.Status == http.StatusSeeOther || a.Status == http.StatusTemporaryRedirect
	if a.Location == "" && a.Status != 0 && a.Status < 400 {
		return words.Wrong("status", strconv.Itoa(a.Status), "must be from 400 to 599; 302, 303 and 307 are for a redirect")
	}
	if a.Location != "" && a.Status != 0 && !moves {
		return words.Wrong("status", strconv.Itoa(a.Status), "must be 302, 303 or 307 beside a redirect; browsers keep others for ever, or do not follow them")
	}
	if a.Type != "" {
		if a.Body == "" && a.File == "" {
			return words.Wrong("type", strconv.Quote(a.Type), "has no effect without body or file; write one of them, or leave it out")
		}
		if _, _, err := mime.ParseMediaType(a.Type); err != nil || !strings.Contains(a.Type, "/") || !isVisible(strings.Replace(a.Type, " ", "", -1)) {
			return words.Wrong("type", strconv.Quote(a.Type), "must be a media type, such as text/html or application/json; charset=utf-8")
		}
	}
	return checkLocation(a.Location)
}

// checkLocation refuses a redirect that no client could follow, or whose host a client would choose.
func checkLocation(location string) error {
	if location == "" {
		return nil
	}
	target := placeholders.ReplaceAllString(location, "x")
	u, err := url.Parse(target)
	if err == nil && isVisible(target) && !strings.Contains(target, `\`) {
		path := strings.HasPrefix(location, "/") && !strings.HasPrefix(location, "//")
		_, host, _ := strings.Cut(location, "://")
		host, _, _ = strings.Cut(host, "/")
		host, _, _ = strings.Cut(host, "?")
		if path || (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && !strings.Contains(host, "{") {
			return nil
		}
	}
	return words.Wrong("redirect", strconv.Quote(location), "must be a path such as /slow-down, or a URL such as https://example.com/slow-down, without spaces, and without a placeholder in its host")
}

// isVisible reports whether a text has only visible characters of ASCII: it then is safe in a header field.
func isVisible(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// ReadAnswer reads the file that a rule's answer names, if it names one, and adds to Advice what is most likely mistyped in the text. It must be called before the
// rule is in use.
func ReadAnswer(r *Rule) error {
	if r.answer == nil {
		return nil
	}
	field := "body"
	if r.answer.File != "" {
		field = "file"
		data, err := readFile(r.answer.File)
		if err == nil && len(data) == 0 {
			err = fmt.Errorf("is empty")
		}
		if err == nil && len(data) > mostAnswered {
			err = fmt.Errorf("has %d bytes; an answer has at most %d", len(data), mostAnswered)
		}
		if err != nil {
			return words.Wrong("file", strconv.Quote(r.answer.File), "%s", err.Error()).Within("answer", "")
		}
		r.answer.Body = string(data)
	}
	r.Advice = append(r.Advice, mistyped(field, r.answer.Body)...)
	r.Advice = append(r.Advice, mistyped("redirect", r.answer.Location)...)
	return nil
}

// answerValues are what stands in braces in an answer for a value of the rejection: see front.Reject.
var answerValues = []string{"limit", "remaining", "reset", "retry_after", "rule"}

// wordInBraces is what may be one of answerValues, mistyped. JSON, styles and scripts have braces, too, but hardly ever with a single word in them.
var wordInBraces = regexp.MustCompile(`\{[A-Za-z_-]+\}`)

// mistyped warns of words in braces that are nearly one of answerValues: of each once.
func mistyped(field, text string) []*words.Mistake {
	var list []*words.Mistake
	seen := make(map[string]bool)
	for _, found := range wordInBraces.FindAllString(text, -1) {
		word := found[1 : len(found)-1]
		most := 1
		if len(word) > 6 {
			most = 2
		}
		near := words.NearestWithin(word, answerValues, most)
		if near == "" || near == word || seen[word] {
			continue
		}
		seen[word] = true
		list = append(list, words.Wrong(field, found, "stands for nothing, and clients get it as it is").Guess("{"+near+"}").Within("answer", ""))
	}
	return list
}
