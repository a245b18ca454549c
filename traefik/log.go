package traefik

import (
	"fmt"
	"log"
)

// warnings is the stream from which Traefik reads a plugin's errors; it has none for warnings.
var warnings = log.New(log.Writer(), "", 0)

// warn writes a line about a middleware to Traefik's log, at its level ERROR.
func warn(middleware, message string) {
	warnings.Println("weir: middleware " + middleware + ": " + message)
}

// inform writes a line about a middleware to Traefik's log, at its level DEBUG.
func inform(middleware, message string) {
	fmt.Println("weir: middleware " + middleware + ": " + message)
}
