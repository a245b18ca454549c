package answer

import (
	"net/http"
	"testing"
)

func TestACallIsGRPCAsItsProtocolSays(t *testing.T) {
	for _, c := range []struct {
		method, kind string
		major        int
		want         bool
	}{
		{"POST", "application/grpc", 2, true},
		{"POST", "application/grpc+proto", 2, true},
		{"POST", "Application/GRPC; charset=utf-8", 3, true},
		{"POST", "application/grpc-web+proto", 2, false},
		{"POST", "application/grpcwhatever", 2, false},
		{"POST", "application/json", 2, false},
		{"POST", "", 2, false},
		{"GET", "application/grpc", 2, false},
		{"POST", "application/grpc", 1, false},
	} {
		r := &http.Request{Method: c.method, ProtoMajor: c.major, Header: http.Header{"Content-Type": {c.kind}}}
		if IsGRPC(r) != c.want {
			t.Errorf("%s with %q over HTTP/%d: gRPC must be %v", c.method, c.kind, c.major, c.want)
		}
	}
	if IsGRPC(&http.Request{Method: "POST", ProtoMajor: 2}) {
		t.Error("without a Content-Type it is no gRPC")
	}
}
