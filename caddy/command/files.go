package command

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
)

// checkFiles reads rule files. It writes all their problems to problems, or if there are none, a summary of each file to out.
func checkFiles(patterns []string, out, problems io.Writer) error {
	files, wrong := readFiles(patterns)
	for _, p := range wrong {
		_, _ = fmt.Fprintln(problems, p)
	}
	if len(wrong) > 0 {
		return errors.New(count(len(wrong), "problem"))
	}
	set, err := ruleset.NewSet(files, "")
	if err != nil {
		return err
	}
	for _, advice := range set.Advice() {
		_, _ = fmt.Fprintln(problems, "warning: "+advice)
	}
	for _, file := range files {
		_, _ = fmt.Fprintf(out, "%s: %s\n", file.Name, summary(file))
	}
	return nil
}

// readFiles reads rule files, and returns all their problems, also those of the other files if one cannot be read.
func readFiles(patterns []string) ([]*ruleset.File, ruleset.Problems) {
	contents, unread := ruleset.Read(patterns)
	if unread == nil {
		return ruleset.Parse(contents, yaml.Parse)
	}
	var files []*ruleset.File
	var problems ruleset.Problems
	seen := make(map[string]bool)
	for _, pattern := range patterns {
		contents, wrong := ruleset.Read([]string{pattern})
		problems = append(problems, wrong...)
		if wrong != nil {
			continue
		}
		for i, name := range contents.Names {
			if seen[name] {
				continue
			}
			seen[name] = true
			file, wrong := ruleset.ParseFile(contents, i, yaml.Parse)
			problems = append(problems, wrong...)
			if file != nil {
				files = append(files, file)
			}
		}
	}
	if len(problems) == 0 { // each file is readable, but together they are too large
		return nil, unread
	}
	return files, append(problems, ruleset.Conflicts(files)...)
}

// summary says how many rules and descriptors a file has.
func summary(f *ruleset.File) string {
	var parts []string
	if len(f.Rules) > 0 || f.Domain == nil {
		parts = append(parts, count(len(f.Rules), "rule"))
	}
	if f.Domain != nil {
		parts = append(parts, fmt.Sprintf("%s, %d of them with a limit, in domain %s", count(f.Domain.Count, "descriptor"), f.Domain.Limits, f.Domain.Name))
	}
	return strings.Join(parts, "; ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
