package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/tools/must"
)

// readContract returns the contract between proxies and advisors as it is written, and the schema of a document.
func readContract(t *testing.T) (contract map[string]any, document *jsonschema.Schema) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "advice.openapi.yaml"))
	must.Succeed(t, err)
	must.Succeed(t, yaml.Unmarshal(text, &contract))
	asJSON, err := json.Marshal(contract)
	must.Succeed(t, err)
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	must.Succeed(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020) // which OpenAPI 3.1 has
	compiler.AssertFormat()
	must.Succeed(t, compiler.AddResource("advice.openapi.json", whole))
	for _, name := range slices.Sorted(maps.Keys(contract["components"].(map[string]any)["schemas"].(map[string]any))) {
		schema, err := compiler.Compile("advice.openapi.json#/components/schemas/" + name)
		must.Succeed(t, err)
		if name == "Document" {
			document = schema
		}
	}
	return contract, document
}

// adviceCase is a case of testdata/advice/documents.json.
type adviceCase struct {
	Title     string      `json:"title"`
	Edits     [][2]string `json:"edits"`
	Rules     int         `json:"rules"`
	InsertHex string      `json:"insert_hex"`
	Pad       int         `json:"pad"`
	Reason    string      `json:"reason"`
	Lax       bool        `json:"lax"`
}

func readAdvice(t *testing.T, name string, to any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "advice", name))
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(text, to))
}

// The schema in the contract takes the documents that proxies take, and refuses those that are no documents, but for what a schema cannot tell.
func TestTheContractTakesTheDocumentsThatProxiesTake(t *testing.T) {
	_, schema := readContract(t)
	var file struct {
		Document string       `json:"document"`
		Cases    []adviceCase `json:"cases"`
	}
	readAdvice(t, "documents.json", &file)
	taken, refused := 0, 0
	for _, c := range file.Cases {
		text := file.Document
		for _, edit := range c.Edits {
			text = strings.Replace(text, edit[0], edit[1], 1)
		}
		var rules []string
		for i := range c.Rules {
			rules = append(rules, fmt.Sprintf(`{"rule":"r%d","limit":{"requests":6},"reason":"growth"}`, i+1))
		}
		text = strings.Replace(text, "RULES", strings.Join(rules, ","), 1)
		inserted, err := hex.DecodeString(c.InsertHex)
		must.Succeed(t, err)
		text = strings.Replace(text, "prophet", string(inserted)+"prophet", 1)
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err == nil {
			err = schema.Validate(document)
		}
		switch c.Reason {
		case advice.Malformed, advice.BadVersion, advice.UnknownField, advice.BadValue:
			if (err != nil) == c.Lax {
				t.Errorf("%s: lax %v, but %v", c.Title, c.Lax, err)
			}
			refused++
		case advice.TooLarge:
		default:
			if err != nil {
				t.Errorf("%s: %v", c.Title, err)
			}
			taken++
		}
	}
	if taken < 30 || refused < 100 {
		t.Errorf("%d taken, %d refused", taken, refused)
	}
}

// What an advisor in Go writes is what the contract has.
func TestTheContractTakesWhatIsWritten(t *testing.T) {
	_, schema := readContract(t)
	at := time.Date(2026, 11, 22, 10, 0, 0, 123456000, time.FixedZone("", 3600))
	number := 0.5
	body, err := advice.Marshal(&advice.Document{
		Serial: 1, Config: advice.Digest(nil), IssuedAt: at, EffectiveAt: at, ExpiresAt: at.Add(time.Minute),
		Model: advice.Model{Name: "holt-winters", HorizonSeconds: 60, SkillVsLast: &number},
		Rules: []advice.Rule{{
			Rule: "shop/api", Reason: "growth", Confidence: &number, Impact: &advice.Impact{}, Limit: &advice.Limit{Requests: 1, Burst: 2, Algorithm: "token_bucket"},
			Above:    &advice.Above{RequestsPerSecond: 0.1, Limit: "1/1h", For: "1m30s"},
			Forecast: &advice.Forecast{Mean: 1, Lower: 0.1, Upper: 1e12, Quantile: 0.99},
		}, {Rule: "x", Reason: "growth", Limit: &advice.Limit{Requests: 1}}},
	})
	must.Succeed(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = schema.Validate(document)
	}
	if err != nil {
		t.Errorf("%s: %v", body, err)
	}
}

// The vectors for advisors ask for answers that the contract has.
func TestTheContractHasTheAnswersOfTheVectors(t *testing.T) {
	contract, _ := readContract(t)
	var file struct {
		HTTP []struct {
			Title   string `json:"title"`
			Request struct {
				Path, Method string
				Headers      map[string]string
			} `json:"request"`
			Want struct {
				Status  int               `json:"status"`
				Headers map[string]string `json:"headers"`
			} `json:"want"`
		} `json:"http"`
	}
	readAdvice(t, "advisor.json", &file)
	asked := map[string]bool{}
	for _, c := range file.HTTP {
		if c.Request.Method != "" {
			continue // another than GET, which the contract does not have
		}
		path, _, _ := strings.Cut(c.Request.Path, "?")
		get, _ := contract["paths"].(map[string]any)[path].(map[string]any)["get"].(map[string]any)
		answer, known := get["responses"].(map[string]any)[strconv.Itoa(c.Want.Status)].(map[string]any)
		if !known {
			t.Errorf("%s: %s has no answer %d", c.Title, path, c.Want.Status)
			continue
		}
		if kind := c.Want.Headers["Content-Type"]; kind != "" {
			if _, known := answer["content"].(map[string]any)[kind]; !known {
				t.Errorf("%s: %s has no %s", c.Title, path, kind)
			}
		}
		asked[path+strconv.Itoa(c.Want.Status)] = true
	}
	for path, operations := range contract["paths"].(map[string]any) {
		for status := range operations.(map[string]any)["get"].(map[string]any)["responses"].(map[string]any) {
			if !asked[path+status] {
				t.Errorf("no vector has %s of %s", status, path)
			}
		}
	}
}
