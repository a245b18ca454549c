// Package acme has the account that a certificates' store would remember.
package acme

// Account is kept in acme.json.
type Account struct {
	Status  string   `json:"status,omitempty"`
	Contact []string `json:"contact,omitempty"`
}

// ExtendedAccount is an Account with the place that it is found at.
type ExtendedAccount struct {
	Account
	Location string
}
