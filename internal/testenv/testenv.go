// Package testenv says what a test needs from the machine, and out loud when it is missing.
package testenv

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Require is set by `make test`: there a missing program that can be installed is a failure, not a
// skip.
const Require = "TALLYWHEEL_REQUIRE"

// Program returns the path of a program, or ends the test: it fails where Require is set, else it
// skips and says how to get the program.
func Program(t testing.TB, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, name, install)
	}
	return path
}

// Python returns the Python that has the module, or ends the test as Program does. That of `make
// deps` comes first: its modules are the newest.
func Python(t testing.TB, module, install string) string {
	t.Helper()
	path := python(t, module)
	if path == "" {
		missing(t, "Python module "+module, install)
	}
	return path
}

// LargePython is Python for a module so large that `make deps` does not insist on it: without it
// the test skips in any case.
func LargePython(t testing.TB, module, install string) string {
	t.Helper()
	path := python(t, module)
	if path == "" {
		t.Skipf("SKIPPED: Python module %s is missing; %s", module, install)
	}
	return path
}

// python is the Python that has the module; "" if there is none.
func python(t testing.TB, module string) string {
	for _, name := range []string{filepath.Join(root(t), ".deps-python/bin/python3"), "python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err == nil && exec.Command(path, "-c", "import "+module).Run() == nil {
			return path
		}
	}
	return ""
}

// root is the folder of the module: a test runs in that of its package.
func root(t testing.TB) string {
	t.Helper()
	for dir, _ := os.Getwd(); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

func missing(t testing.TB, what, install string) {
	t.Helper()
	if os.Getenv(Require) != "" {
		t.Fatalf("%s is missing; %s", what, install)
	}
	t.Skipf("SKIPPED: %s is missing; %s", what, install)
}

var build struct {
	once sync.Once
	path string
	err  error
	out  []byte
}

// Binary builds the command once for all tests of a package and returns its path. The race detector
// is on if it is in the tests' own environment (TALLYWHEEL_RACE).
func Binary(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		dependOn(root(t))
		dir, err := os.MkdirTemp("", "tallywheel-bin-")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "tallywheel")
		args := []string{"build", "-o", build.path}
		env := append(os.Environ(), "CGO_ENABLED=0")
		if os.Getenv("TALLYWHEEL_RACE") != "" {
			args, env = append(args, "-race"), append(os.Environ(), "CGO_ENABLED=1")
		}
		c := exec.Command("go", append(args, "github.com/tallywheel/tallywheel/cmd/tallywheel")...)
		c.Env = env
		build.out, build.err = c.CombinedOutput()
	})
	if build.err != nil {
		t.Fatalf("build: %v\n%s", build.err, build.out)
	}
	return build.path
}

// dependOn makes the result of a test depend on every file of the module: the Go command keeps
// results, and does not see that a program which the test starts was built of them. It notes the
// folders that a test reads.
func dependOn(module string) {
	_ = filepath.WalkDir(module, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && path != module &&
			(e.Name()[0] == '.' || e.Name() == "bin" || e.Name() == "testdata") {
			return fs.SkipDir
		}
		return nil
	})
}

// CleanUp removes what Binary built; for TestMain.
func CleanUp() {
	if build.path != "" {
		_ = os.RemoveAll(filepath.Dir(build.path))
	}
}

// Until asks again and again, for at most so long, and fails the test if the answer stays no. It is
// for events of other processes, which cannot be waited for in another way. Less than a minute is a
// minute: a busy machine may stand still for many seconds.
func Until(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	within = max(within, time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", within, what)
		case <-look.C:
		}
	}
}

// Calm has a test succeed if it does so once within a minute. It is for what a busy machine spoils,
// and a wrong program spoils each time.
func Calm(t testing.TB, try func() error) {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
		t.Log("once more: ", err)
	}
}

// Process is a running program whose output is kept.
type Process struct {
	Cmd      *exec.Cmd
	Out, Err *Buffer
}

// Start starts a program that ends with the test at the latest.
func Start(t testing.TB, path string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(path, args...), Out: &Buffer{}, Err: &Buffer{}}
	p.Cmd.Stdout, p.Cmd.Stderr = p.Out, p.Err
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		_ = p.Cmd.Wait()
	})
	return p
}

// Buffer is a bytes.Buffer that a process may write while a test reads.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
