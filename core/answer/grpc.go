package answer

import (
	"net/http"
	"strings"
)

// The codes of gRPC that clients are answered with.
const (
	GRPCResourceExhausted = "8"
	GRPCUnavailable       = "14"
)

// IsGRPC reports whether a request is a gRPC call, as gRPC's protocol over HTTP/2 defines one.
func IsGRPC(r *http.Request) bool {
	types := r.Header["Content-Type"]
	if r.ProtoMajor < 2 || r.Method != http.MethodPost || len(types) == 0 {
		return false
	}
	media := strings.ToLower(types[0])
	rest := strings.TrimPrefix(media, "application/grpc")
	return rest != media && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// GRPC writes a gRPC response without messages, whose status is in the header fields. Clients take the code only from
// a response with HTTP status 200.
func GRPC(w http.ResponseWriter, code, message string) {
	header := w.Header()
	header["Content-Type"] = []string{"application/grpc"}
	header["Grpc-Status"] = []string{code}
	header["Grpc-Message"] = []string{message}
	w.WriteHeader(http.StatusOK)
}
