package pressure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Reasons are those, in metrics, for which a question brings no value: there was no answer within the interval; it has another status than 200, as
// redirects have, which are not followed; it is too long, or has no finite number where one is wanted; the query returns no series, or several.
var Reasons = []string{"unreachable", "status", "invalid", "series"}

// failure is why a question has brought no value.
type failure struct {
	reason, text string
}

func failed(reason, text string, args ...interface{}) *failure {
	return &failure{reason, fmt.Sprintf(text, args...)}
}

// ask asks a source once, for as long as its interval.
func ask(ctx context.Context, client *http.Client, s Source) (float64, *failure) {
	const most = 64 << 10 // bytes of an answer
	limited, cancel := context.WithTimeout(ctx, s.Interval)
	defer cancel()
	address := s.URL
	if s.Query != "" {
		address = strings.TrimRight(address, "/") + "/api/v1/query?query=" + url.QueryEscape(s.Query)
	}
	var body []byte
	request, err := http.NewRequestWithContext(limited, http.MethodGet, address, nil)
	code := 0
	if err == nil {
		request.Header.Set("User-Agent", "weir")
		var response *http.Response
		if response, err = client.Do(request); err == nil {
			defer response.Body.Close() //nolint:errcheck // it has been read
			code = response.StatusCode
			body, err = io.ReadAll(io.LimitReader(response.Body, most+1))
		}
	}
	switch {
	case err != nil && limited.Err() == context.DeadlineExceeded: //nolint:errorlint // a context wraps nothing
		return 0, failed("unreachable", "no answer within %s", s.Interval.String())
	case err != nil:
		if of, is := err.(*url.Error); is { //nolint:errorlint // of the client itself; its text would have the address, with a token in its query
			err = of.Err
		}
		return 0, failed("unreachable", "%s", err.Error())
	case code != http.StatusOK:
		return 0, failed("status", "the answer has status %d, not 200: %s", code, quote(string(body)))
	case len(body) > most:
		return 0, failed("invalid", "the answer has more than %d bytes", most)
	case s.Query+s.Field == "":
		return number(string(body))
	}
	var answer interface{}
	if err = json.Unmarshal(body, &answer); err != nil {
		return 0, failed("invalid", "%s is not JSON: %s", quote(string(body)), err.Error())
	}
	if s.Query != "" {
		return ofPrometheus(answer)
	}
	if value, is := at(answer, s.Field).(float64); is {
		return value, nil
	}
	return 0, failed("invalid", "%s has no number at field %s", quote(string(body)), s.Field)
}

func quote(text string) string {
	const told = 100
	if len(text) > told {
		text = text[:told]
	}
	return strconv.Quote(text)
}

// number reads a finite number.
func number(text string) (float64, *failure) {
	value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, failed("invalid", "%s is no finite number", quote(text))
	}
	return value, nil
}

// at returns the part of a value of JSON that is at a path; false: there is none.
func at(value interface{}, path string) interface{} {
	for _, name := range strings.Split(path, ".") {
		var next interface{}
		if value == nil { // the whole answer is null
			return false
		}
		switch of := value.(type) {
		case map[string]interface{}:
			next = of[name]
		case []interface{}:
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(of) {
				next = of[i]
			}
		}
		if next == nil {
			return false
		}
		value = next
	}
	return value
}

// ofPrometheus reads the value of a scalar, or of the one series of a vector, as Prometheus's HTTP API answers, version 1.
func ofPrometheus(answer interface{}) (float64, *failure) {
	path := "data.result.1"
	if kind := at(answer, "data.resultType"); kind == "vector" {
		if list, _ := at(answer, "data.result").([]interface{}); len(list) != 1 {
			return 0, failed("series", "the query returns %d series; one is wanted, such as that of max(…)", len(list))
		}
		path = "data.result.0.value.1"
	} else if kind != "scalar" {
		return 0, failed("invalid", "the answer is not what Prometheus answers to a query of one value")
	}
	return number(fmt.Sprint(at(answer, path)))
}
