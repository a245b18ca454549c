package admin

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/tools/must"
)

// described is a part of docs/admin.openapi.yaml.
type described = map[string]any

func readDescription(t *testing.T) described {
	t.Helper()
	text, err := os.ReadFile("../../docs/admin.openapi.yaml")
	must.Succeed(t, err)
	var whole described
	must.Succeed(t, yaml.Unmarshal(text, &whole))
	return whole
}

func TestTheDescriptionHasThePathsAndMethodsThatThereAre(t *testing.T) {
	var got, want []string
	for path, item := range readDescription(t)["paths"].(described) {
		for method := range item.(described) {
			got = append(got, strings.ToUpper(method)+" "+path)
		}
	}
	for _, e := range append([]endpoint{{name: "", methods: reading}, blockedEndpoint}, endpoints...) {
		for _, method := range e.methods {
			if method != "HEAD" { // which every GET implies
				want = append(want, method+" "+adminPath+e.name)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	must.Equal(t, strings.Join(got, "\n"), strings.Join(want, "\n"), "the description has")
}

// Every object of an answer, and the bodies of requests, have the fields that the description says; and no schema describes anything else.
func TestTheDescriptionHasTheFieldsThatThereAre(t *testing.T) {
	d := description{t: t, schemas: readDescription(t)["components"].(described)["schemas"].(described), seen: make(map[string]bool)}
	for name, of := range map[string]reflect.Type{
		"Rules": reflect.TypeFor[rulesAnswer](), "TopKeys": reflect.TypeFor[topAnswer](), "Standings": reflect.TypeFor[keyAnswer](),
		"Explanation": reflect.TypeFor[explainAnswer](), "Decision": reflect.TypeFor[decided](), "Exceptions": reflect.TypeFor[exceptionsAnswer](),
		"Blocked": reflect.TypeFor[blockedAnswer](), "Until": reflect.TypeFor[untilAnswer](), "Keys": reflect.TypeFor[keysAnswer](), "Credit": reflect.TypeFor[creditAnswer](),
		"Advice": reflect.TypeOf((*adapt.Controller).Answer).Out(0), "Health": reflect.TypeFor[healthAnswer](), "Jobs": reflect.TypeFor[jobsAnswer](),
		"Key": reflect.TypeFor[keyRequest](), "ByHand": reflect.TypeFor[decision](), "Lasting": reflect.TypeFor[lasting](), "Request": reflect.TypeFor[explainRequest](),
		"Question": reflect.TypeFor[ask](), "JobsAsked": reflect.TypeFor[jobsAsked](),
	} {
		d.check(name, described{"$ref": "#/components/schemas/" + name}, of)
	}
	for name, schema := range d.schemas {
		if schema.(described)["properties"] != nil && !d.seen[name] {
			t.Errorf("nothing is what the schema %s describes", name)
		}
	}
}

// description holds types to schemas.
type description struct {
	t       *testing.T
	schemas described
	seen    map[string]bool
}

func (d *description) check(place string, schema described, of reflect.Type) {
	d.t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if ref, is := schema["$ref"].(string); is {
		name, own := strings.CutPrefix(ref, "#/components/schemas/")
		if !own { // of another document
			return
		}
		if d.schemas[name] == nil {
			d.t.Errorf("%s: there is no schema %s", place, name)
			return
		}
		d.seen[name] = true
		place, schema = name, d.schemas[name].(described)
	}
	properties, has := schema["properties"].(described)
	switch {
	case of.Kind() == reflect.Slice && schema["items"] != nil:
		d.check(place, schema["items"].(described), of.Elem())
	case of.Kind() == reflect.Struct && has:
		fields := make(map[string]reflect.Type)
		fieldsOf(of, fields)
		for name, field := range fields {
			if property, has := properties[name].(described); has {
				d.check(place+"."+name, property, field)
			} else {
				d.t.Errorf("%s: the field %s is missing", place, name)
			}
		}
		for name := range properties {
			if fields[name] == nil {
				d.t.Errorf("%s: there is no field %s", place, name)
			}
		}
	}
}

// fieldsOf finds the fields of a struct in JSON, those of embedded ones among them.
func fieldsOf(of reflect.Type, fields map[string]reflect.Type) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch inner := field.Type; {
		case name != "":
			fields[name] = field.Type
		case field.Anonymous:
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			fieldsOf(inner, fields)
		}
	}
}
