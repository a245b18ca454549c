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
)

// BenchmarkIndex sets Memory's two indexes against each other by one program, compiled and under the interpreter that
// Traefik runs plugins with. Its b.N means nothing.
func BenchmarkIndex(b *testing.B) {
	dir := b.TempDir()
	source, err := filepath.Abs("interpreted")
	if err != nil {
		b.Fatal(err)
	}
	compiled := filepath.Join(dir, "compiled")
	command(b, ".", "go", "build", "-o", compiled, "./interpreted")
	for _, keys := range []string{"10000", "100000", "1000000"} {
		report(b, "by=compiled/keys="+keys, command(b, ".", compiled, keys, "300000"))
	}

	yaegi := filepath.Join(dir, "yaegi")
	command(b, "../e2e", "go", "build", "-o", yaegi, "github.com/traefik/yaegi/cmd/yaegi")
	module := filepath.Join(dir, "src", "github.com", "proxyweir", "weir")
	if err := os.MkdirAll(filepath.Dir(module), 0o700); err != nil {
		b.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		b.Fatal(err)
	}
	if err := os.Symlink(root, module); err != nil {
		b.Fatal(err)
	}
	b.Setenv("GOPATH", dir)
	b.Setenv("GO111MODULE", "off")
	for _, keys := range []string{"2000", "20000"} {
		report(b, "by=interpreted/keys="+keys, command(b, dir, yaegi, "run", filepath.Join(source, "main.go"), keys, "3000"))
	}
}

// report makes a benchmark of each line of the program's output: a name and nanoseconds.
func report(b *testing.B, prefix string, output []byte) {
	lines := bufio.NewScanner(bytes.NewReader(output))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		nanos, err := strconv.ParseFloat(value, 64)
		if err != nil {
			b.Fatalf("%q: %v", lines.Text(), err)
		}
		b.Run(prefix+"/index="+name, func(b *testing.B) {
			b.ReportMetric(nanos, "cpu-ns/op")
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
