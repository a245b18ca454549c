package traefik

import (
	"net/http"
	"reflect"
)

// writtenStatus returns the status that a handler has written to w; 0: it cannot be told. Neither net/http nor Traefik lets a plugin ask, and
// a writer that asks cannot be put in between (see guarded). So this reads it from where they keep it, and what it does not know there is 0.
func writtenStatus(w http.ResponseWriter) int64 {
	const deepest = 32
	v := reflect.ValueOf(w)
	for i := 0; i < deepest; i++ {
		kind := v.Kind()
		if kind == reflect.Ptr || kind == reflect.Interface {
			v = v.Elem()
			continue
		}
		if kind != reflect.Struct {
			return 0
		}
		status := memberOf(v, statusFields)
		if status.Kind() == reflect.Int {
			return status.Int()
		}
		v = memberOf(v, writerFields)
	}
	return 0
}

// The names of the fields in which writers keep the status, and other writers: those of net/http, with HTTP/2, of Traefik, and of net/http/httptest.
var (
	statusFields = []string{"status", "statusCode", "Code"}
	writerFields = []string{"rw", "ResponseWriter", "rws", "w"}
)

// memberOf returns the first field of a struct that has one of these names. The zero Value has the Kind Invalid: there is none.
func memberOf(v reflect.Value, names []string) reflect.Value {
	for _, name := range names {
		if f := v.FieldByName(name); f.IsValid() {
			return f
		}
	}
	return reflect.Value{}
}
