package advice

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Agreement is what a fleet agrees on. Times are in microseconds of its store's clock, since the Unix epoch.
type Agreement struct {
	Now       int64
	Leads     bool   // it is this node that fetches documents, until its lease ends
	Serial    int64  // of the document; 0: there is none
	Effective int64  // when all nodes follow it
	Document  []byte // nil: the node has it already
}

// Proposal is a document that a node has fetched.
type Proposal struct {
	Serial   int64 // above that of the document before; else it is dropped
	Document []byte
	After    time.Duration // how long from now it takes effect: so long that all nodes have asked before
	Keep     time.Duration // how long it is the fleet's, at most 25 hours; then a document with any serial takes its place
}

// FleetName returns the name under which the nodes of a fleet agree that ask the same advisor for the same rules.
func FleetName(fleet, url, digest string) string {
	sum := sha256.Sum256([]byte(url + "\n" + digest))
	return fleet + ":" + hex.EncodeToString(sum[:8])
}
