package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/doctor"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// TestDoctorAsksOnATerminal: on a terminal it says what it will do, asks, and does it only when
// told yes.
func TestDoctorAsksOnATerminal(t *testing.T) {
	root := t.TempDir()
	setting := filepath.Join(root, "proc/sys/net/core/somaxconn")
	if err := errors.Join(os.MkdirAll(filepath.Dir(setting), 0o755),
		os.WriteFile(setting, []byte("128\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	now := func() string {
		b, err := os.ReadFile(setting)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	ask := func(e examination, answer string) (string, error) {
		master, slave, err := sys.OpenPTY()
		if err != nil {
			t.Fatal(err)
		}
		defer sys.CloseFD(master)
		in, err := os.OpenFile(slave, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if _, err := sys.Write(master, []byte(answer)); err != nil {
			t.Fatal(err)
		}
		var out, talk bytes.Buffer
		e.record = filepath.Join(root, "doctor.json")
		err = e.run(t.Context(), doctor.Kernel{Root: root}, in, &out, &talk)
		return talk.String(), err
	}
	said, err := ask(examination{fix: true}, "n\n")
	if err == nil || err.Error() != "nothing was changed" || now() != "128" {
		t.Errorf("told no: %v, %s", err, now())
	}
	if !strings.Contains(said, "will be set: /proc/sys/net/core/somaxconn: 4096 instead of 128") ||
		!strings.Contains(said, "go on? [y/N]") {
		t.Errorf("it says %q", said)
	}
	if _, err := ask(examination{fix: true}, "yes\n"); err != nil || now() != "4096" {
		t.Errorf("told yes: %v, %s", err, now())
	}
	said, err = ask(examination{undo: true}, "y\n")
	if err != nil || now() != "128" ||
		!strings.Contains(said, "will be set: /proc/sys/net/core/somaxconn: 128 instead of 4096") {
		t.Errorf("undone: %v, %s, %q", err, now(), said)
	}
}
