package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestWhatTheGrafanaPageShowsLoads(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(grafanaDir, "README.md"))
	must.Succeed(t, err)
	caddy, err := caddyProgram()
	must.Succeed(t, err)
	alerts, err := filepath.Abs(filepath.Join(grafanaDir, "alerts.yaml"))
	must.Succeed(t, err)
	promtool, dir := debianProgram(t, "promtool"), t.TempDir()
	checked := make(map[string]int)
	for _, block := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		language, config := block[1], strings.ReplaceAll(block[2], "/etc/prometheus/weir-alerts.yaml", alerts)
		file := filepath.Join(dir, "config")
		must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
		var check *exec.Cmd
		switch {
		case language == "caddyfile":
			check = exec.Command(caddy, "validate", "--adapter", "caddyfile", "--config", file)
			check.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
		case strings.HasPrefix(config, "scrape_configs:"), strings.HasPrefix(config, "rule_files:"):
			language = "prometheus"
			check = exec.Command(promtool, "check", "config", file)
		default:
			continue // one of Traefik's
		}
		checked[language]++
		if said, err := check.CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, config, said)
		}
	}
	if checked["caddyfile"] != 1 || checked["prometheus"] != 4 {
		t.Errorf("checked were %v", checked)
	}
}

func TestLinksOfTheGrafanaPageLeadSomewhere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(grafanaDir, "README.md"))
	must.Succeed(t, err)
	anchors := func(page string) []string {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			return nil
		}
		var all []string
		for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
			anchor := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading[1]), "")
			all = append(all, strings.ReplaceAll(anchor, " ", "-"))
		}
		return all
	}
	links := regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(string(text), -1)
	for _, link := range links {
		if strings.HasPrefix(link[1], "https://") {
			continue
		}
		page, anchor, has := strings.Cut(link[1], "#")
		if page == "" {
			page = "README.md"
		}
		found := anchors(filepath.Join(grafanaDir, page))
		if has && !strings.Contains("\n"+strings.Join(found, "\n")+"\n", "\n"+anchor+"\n") {
			t.Errorf("%s: there are %v", link[1], found)
		}
	}
	if len(links) < 10 {
		t.Errorf("found %d links", len(links))
	}
}
