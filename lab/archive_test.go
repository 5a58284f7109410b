package lab

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the archive of the peers and the golden reports anew")

// TestPeersArchive: Go does not embed files of another module, so contestants/peers.txtar holds a
// copy of contestants/go, which must be the same.
func TestPeersArchive(t *testing.T) {
	const dir, archive = "contestants/go", "contestants/peers.txtar"
	want := txtar.Archive{Comment: []byte("A copy of contestants/go, made by `make golden`: Go does not embed files of another module.\n\n")}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		want.Files = append(want.Files, txtar.File{Name: filepath.ToSlash(name), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text := txtar.Format(&want)
	if *update {
		if err := os.WriteFile(archive, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, text) {
		t.Errorf("%s is not what is in %s: run `make golden`", archive, dir)
	}
}
