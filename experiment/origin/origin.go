// Package origin says where data come from: the commit, the version of Go, and the machine.
package origin

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Origin is of the data that a program writes.
type Origin struct {
	Commit  string `json:"commit"` // of the checkout; with "+" behind it if files were changed
	Go      string `json:"go"`
	System  string `json:"system"`
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Kernel  string `json:"kernel,omitempty"`
	Redis   string `json:"redis,omitempty"`
	Metrics string `json:"prometheus,omitempty"`
	Traefik string `json:"traefik,omitempty"`
}

// Of returns the origin of what this program writes, without the versions of servers. What cannot be found out is empty.
func Of() Origin {
	o := Origin{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU()}
	o.Commit = First("git", "rev-parse", "--short=12", "HEAD")
	if First("git", "status", "--porcelain", "--untracked-files=no") != "" {
		o.Commit += "+"
	}
	o.Kernel = First("uname", "-r")
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			o.CPU = strings.TrimSpace(value)
			break
		}
	}
	return o
}

// First returns the first line that a command prints; "" if it fails.
func First(name string, args ...string) string {
	text, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}

// String is the origin as JSON in one line.
func (o Origin) String() string {
	text, _ := json.Marshal(o)
	return string(text)
}
