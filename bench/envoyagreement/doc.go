// Package envoyagreement has tests alone: that Weir finds the limits that Envoy's ratelimit service finds for the same files and the
// same requests, counts them by keys that tell the same requests apart, and refuses the files that the service refuses. It asks the
// service's own code.
//
// Where the two part on purpose, a test says so and why: TestWhatIsRefusedHereAlone, TestWhatIsTakenHereAlone,
// TestPathsThatTheServiceConfuses.
package envoyagreement
