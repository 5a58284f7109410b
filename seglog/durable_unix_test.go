//go:build unix

package seglog

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// The file `durable` is made again, within seconds, and without a commit, whatever is done to it
// while the log is open. Until then a log that was cut, and killed, gave numbers again.
func TestDurableIsMadeAgain(t *testing.T) {
	path, cfg, told := telling(t)
	cfg.Sync = SyncAlways
	l := open(t, cfg)
	defer func() { closeLog(t, l) }()
	name := filepath.Join(path, durableFile)
	for i := range uint64(3) {
		if _, err := l.Append(0, 1, payload(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(3)
	put := func(name string, b []byte) error { return os.WriteFile(name, b, FilePerm) }
	for _, harm := range []struct {
		what string
		do   func() error
		told bool
	}{
		{"removed", func() error { return os.Remove(name) }, false},
		{"cut", func() error { return os.Truncate(name, 0) }, false},
		{"written over by an older one", func() error { return put(name, old) }, false},
		{"replaced by an older one", func() error {
			if err := put(name+".old", old); err != nil {
				return err
			}
			return os.Rename(name+".old", name)
		}, false},
		{"replaced by a folder", func() error {
			if err := os.Remove(name); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(name, "with", "more"), 0o700)
		}, true},
		{"replaced by a pipe", func() error {
			if err := os.Remove(name); err != nil {
				return err
			}
			return syscall.Mkfifo(name, 0o600)
		}, true},
		{"replaced by a link to itself", func() error {
			if err := os.Remove(name); err != nil {
				return err
			}
			return os.Symlink(durableFile, name)
		}, true},
		{"replaced by a link to nowhere", func() error {
			if err := os.Remove(name); err != nil {
				return err
			}
			return os.Symlink("nowhere", name)
		}, true},
		{"removed, with a folder where the next one is made", func() error {
			if err := os.Remove(name); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(name+partSuffix, "more"), 0o700)
		}, true},
	} {
		if _, err := l.Append(0, 1, payload(last+1)); err != nil {
			t.Fatal(err)
		}
		last++
		if err := harm.do(); err != nil {
			t.Fatal(harm.what, err)
		}
		testenv.Until(t, patience, harm.what+": `durable` is right again", func() bool {
			s, err := readSaid(cfg.FS, false)
			return err == nil && s.last == last && s.log == l.Identity()
		})
		if harm.told {
			if err := <-told; !strings.Contains(err.Error(), durableFile) ||
				!strings.Contains(err.Error(), damagedSuffix) {
				t.Errorf("%s: told %v", harm.what, err)
			}
		}
	}
	select {
	case err := <-told:
		t.Errorf("told, too: %v", err)
	default:
	}
}

// A folder in the place of `durable` is named by Verify, and set aside by the next start.
func TestDurableThatIsNoFile(t *testing.T) {
	path, cfg, told := telling(t)
	closeLog(t, open(t, cfg))
	name := filepath.Join(path, durableFile)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := Verify(cfg.FS)
	if err != nil || !s.Clean() || len(s.Problems) != 1 || s.Problems[0].Segment != durableFile {
		t.Errorf("%+v, %v; want one harmless problem", s, err)
	}
	l := open(t, cfg)
	defer closeLog(t, l)
	if _, err := os.Stat(name + damagedSuffix); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(name); err != nil || st.Size() != durableBytes {
		t.Error(st, err)
	}
	if err := <-told; !strings.Contains(err.Error(), durableFile) {
		t.Errorf("told %v", err)
	}
}
