//go:build unix

package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What keeps a reader waiting, or has no end, is an error in the place of a configuration, a
// certificate or a key.
func TestWhatIsNoOrdinaryFile(t *testing.T) {
	const none = "is no ordinary file"
	for kind, put := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a pipe":   {func(path string) error { return syscall.Mkfifo(path, 0o600) }, none},
		"a folder": {func(path string) error { return os.Mkdir(path, 0o700) }, none},
		"a device": {func(path string) error { return os.Symlink("/dev/zero", path) }, none},
		"too large": {
			func(path string) error { return os.WriteFile(path, make([]byte, maxFile+1), 0o600) },
			"has more than",
		},
	} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := put.make(path); err != nil {
			t.Fatal(err)
		}
		loads := []func(string) (Config, error){Reload, Load}
		if kind == "a pipe" {
			loads = loads[:1]
		}
		for _, load := range loads {
			if _, err := load(path); err == nil || !strings.Contains(err.Error(), path+" "+put.want) {
				t.Errorf("%s as configuration: %v", kind, err)
			}
		}
		if _, _, err := (TLS{Cert: path, Key: path}).Load(); err == nil ||
			!strings.Contains(err.Error(), path+" "+put.want) {
			t.Errorf("%s as certificate: %v", kind, err)
		}
	}
}

// A configuration that is made by another program, which decrypts it, comes through a pipe.
func TestLoadFromAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	for _, c := range []struct{ text, want string }{
		{"log: {dir: /d}\n", ""}, {strings.Repeat("#", maxFile+1), path + " has more than"},
	} {
		go func() { written <- os.WriteFile(path, []byte(c.text), 0o600) }()
		cfg, err := Load(path)
		if c.want == "" && (err != nil || cfg.Log.Dir != "/d") ||
			c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%.20q: %+v, %v", c.text, cfg.Log, err)
		}
		<-written
	}
}
