package bench

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// BenchmarkIndex compares Memory's two indexes in one program, compiled and under the interpreter that Traefik runs plugins with. It ignores
// b.N.
func BenchmarkIndex(b *testing.B) {
	dir := b.TempDir()
	compiled := filepath.Join(dir, "compiled")
	command(b, ".", "go", "build", "-o", compiled, "./interpreted")
	for _, keys := range []string{"10000", "100000", "1000000"} {
		report(b, "by=compiled/keys="+keys+"/index=", "cpu-ns/op", command(b, ".", compiled, keys, "300000"))
	}

	run := underYaegi(b)
	for _, keys := range []string{"2000", "20000"} {
		report(b, "by=interpreted/keys="+keys+"/index=", "cpu-ns/op", run("interpreted", keys, "3000"))
	}
}

// BenchmarkPlugin compares configurations of the Traefik plugin in one program, compiled and under the interpreter. It ignores b.N.
func BenchmarkPlugin(b *testing.B) {
	compiled := filepath.Join(b.TempDir(), "compiled")
	command(b, ".", "go", "build", "-o", compiled, "./plugin")
	report(b, "by=compiled/", pluginUnits, command(b, ".", compiled))
	report(b, "by=interpreted/", pluginUnits, underYaegi(b)("plugin"))
}

const pluginUnits = "wall-ns/op allocs/op B/op"

// underYaegi returns a function that runs a program of this folder under the interpreter that Traefik runs plugins with, and returns its output.
func underYaegi(b *testing.B) func(folder string, args ...string) []byte {
	dir := b.TempDir()
	yaegi := filepath.Join(dir, "yaegi")
	command(b, "../e2e", "go", "build", "-o", yaegi, "github.com/traefik/yaegi/cmd/yaegi")
	module := filepath.Join(dir, "src", "github.com", "proxyweir", "weir")
	must.Succeed(b, os.MkdirAll(filepath.Dir(module), 0o700))
	root, err := filepath.Abs("..")
	must.Succeed(b, err)
	must.Succeed(b, os.Symlink(root, module))
	b.Setenv("GOPATH", dir)
	b.Setenv("GO111MODULE", "off")
	return func(folder string, args ...string) []byte {
		return command(b, dir, yaegi, append([]string{"run", filepath.Join(root, "bench", folder, "main.go")}, args...)...)
	}
}

// report reports each line of the program's output as a benchmark: a name, and a number of each of the units.
func report(b *testing.B, prefix, units string, output []byte) {
	lines := bufio.NewScanner(bytes.NewReader(output))
	for lines.Scan() {
		name, values, _ := strings.Cut(lines.Text(), " ")
		b.Run(prefix+name, func(b *testing.B) {
			for i, value := range strings.Fields(values) {
				number, err := strconv.ParseFloat(value, 64)
				if err != nil {
					b.Fatalf("%q: %v", lines.Text(), err)
				}
				b.ReportMetric(number, strings.Fields(units)[i])
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// command runs a program in a folder and returns its output.
func command(b *testing.B, dir, name string, args ...string) []byte {
	c := exec.Command(name, args...)
	c.Dir = dir
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		b.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes()
}
