package recorder

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

var spoolKills = flag.Int("spool-kills", 80, "how many processes that record a spool are killed")

// A process that this variable is set for records the spool that is its descriptor 3, of a source
// of that framing, into the folder in which it runs. To its standard output it writes a byte as
// soon as it runs, and its books once its standard input has ended and nothing is left.
const spoolVariable = "TALLYWHEEL_SPOOL_RECORDER"

func init() {
	if kind := os.Getenv(spoolVariable); kind != "" {
		if err := recordSpool(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func recordSpool(kind string) error {
	var ends atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ends.Store(true)
	}()
	fmt.Print("!")
	dir, err := seglog.Dir(".")
	if err != nil {
		return err
	}
	var last atomic.Pointer[seglog.Commit]
	log, err := seglog.Open(seglog.Config{
		// Bytes that are in no frame are not kept while the log is busy: so it has room for all.
		FS: dir, SegmentBytes: 1 << 20, BufferBytes: 512 << 10, Sync: seglog.SyncBatch, BatchDelay: time.Millisecond,
		OnCommit: func(c seglog.Commit) { last.Store(&c) },
	})
	if err != nil {
		return err
	}
	l, err := newLane(killedSource(kind, os.Getenv(spoolVariable+"_MESSAGES") != ""), log, frameStream, wasteStream)
	if err != nil {
		return err
	}
	s, err := spool.Open(os.NewFile(3, "spool"))
	if err != nil {
		return err
	}
	r, err := newSpooled(l, s, liveLog{log}, steadyEnd)
	if err != nil {
		return err
	}
	for at := log.Position(); ; at = log.Position() {
		l.settle(seglog.Commit{Stored: at.Stored, Durable: at.Durable}, 2e18)
		done := ends.Load()
		more, err := r.step()
		if err != nil {
			return err
		}
		if c := last.Load(); c != nil && c.Err != nil {
			return c.Err
		}
		switch {
		case more:
		case done && l.isSettled() && at.Durable == at.Stored && l.unsynced().IsEmpty():
			p := l.sheet()
			p.LastLoss = 0
			if err := json.NewEncoder(os.Stdout).Encode(p); err != nil {
				return err
			}
			return log.Close()
		default:
			time.Sleep(100 * time.Microsecond) // a spool wakes nobody
		}
	}
}

// TestKilledRecorders kills processes that record a spool while bytes come: while they open and
// recover the log, too. Each record is in the log once, and the books are those of a lane that
// lived through it.
func TestKilledRecorders(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for _, kind := range killedKinds {
		messages := rng.IntN(3) == 0
		s, want, books := lived(t, rng, killedSource(kind, messages))
		sp, err := spool.Create(spool.Config{Size: 1 << 20, Room: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer sp.Close()
		p, err := sp.Producer(0)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		kills := *spoolKills / len(killedKinds)
		for i := range kills {
			c, _, out := startRecorder(t, dir, kind, messages, sp)
			part := s[i*len(s)/kills : (i+1)*len(s)/kills]
			for len(part) > 0 {
				n := 1 + rng.IntN(len(part))
				part[:n].feed(t, p)
				part = part[n:]
				time.Sleep(time.Duration(rng.IntN(2_000_000)))
			}
			time.Sleep(time.Duration(rng.IntN(20_000_000))) // the moment of the kill
			_ = c.Process.Kill()
			_, _ = io.Copy(io.Discard, out)
			_ = c.Wait()
			if s := c.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() {
				t.Fatalf("%s: the recorder ended by itself: %v", kind, c.ProcessState)
			}
		}
		c, in, out := startRecorder(t, dir, kind, messages, sp)
		_ = in.Close()
		var got ledger.Port
		if err := json.NewDecoder(out).Decode(&got); err != nil {
			t.Fatalf("%s: its books: %v", kind, err)
		}
		if err := c.Wait(); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if got := storyOf(t, dir); !slices.EqualFunc(got, want, same) {
			t.Errorf("%s, messages %v, killed %d times: %s", kind, messages, kills, differs(got, want))
		}
		if got, want := asJSON(t, got), asJSON(t, books); got != want {
			t.Errorf("%s, messages %v, killed %d times: the books are\n%s, want\n%s", kind, messages, kills, got, want)
		}
	}
}

// startRecorder starts a process that records, and returns when it runs.
func startRecorder(t *testing.T, dir, kind string, messages bool, s *spool.Spool) (c *exec.Cmd, in io.Closer,
	out io.Reader,
) {
	t.Helper()
	c = exec.Command(os.Args[0])
	c.Dir, c.Stderr, c.ExtraFiles = dir, os.Stderr, []*os.File{s.File()}
	c.Env = append(os.Environ(), spoolVariable+"="+kind)
	if messages {
		c.Env = append(c.Env, spoolVariable+"_MESSAGES=yes")
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = c.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatalf("%s: %v: %v", kind, err, c.Wait())
	}
	return c, in, out
}

// storyOf is what is in a log.
func storyOf(t *testing.T, path string) []entry {
	t.Helper()
	dir, err := seglog.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	r := seglog.NewReader(dir, 0)
	defer r.Close()
	var all entries
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all.story()
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{rec.Stream, rec.Time, slices.Clone(rec.Data)})
	}
}

func asJSON(t *testing.T, p ledger.Port) string {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
