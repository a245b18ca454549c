package exception

// Ask is a call of where a table is kept.
type Ask struct {
	Known string // the version that the table has; "": none

	// Document takes the place of what is there, if that has the version Over, or, with Lost, if it is older than Known. nil: the table only reads.
	Document []byte
	Over     string
	Lost     bool
}

// Answer is its answer. Versions are texts of equal length that grow.
type Answer struct {
	Now      int64  // by the store's clock
	Version  string // of what is there now; "": nothing is
	Taken    bool   // the document of the call is there now
	Document []byte // unless the version is the known one, or was taken
}

// Exchange reads and writes where a table is kept.
type Exchange func(ask *Ask) (*Answer, error)
