package isolate

import (
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// victimVariable makes this test a keeper that is killed.
const victimVariable = "TALLYWHEEL_TEST_STORE"

// victim puts, moves and drops entries until it is killed. The data of each is the number of its
// descriptor's file; "held" is there from its first moment on, and what it has is "next" before.
func victim() {
	k := newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
	k.beginStore()
	for !k.has(StoreEntry) {
		time.Sleep(time.Millisecond)
	}
	for n := 0; ; n++ {
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		_ = w.Close()
		fd, err := sys.Dup(int(r.Fd()))
		if err != nil {
			panic(err)
		}
		_ = r.Close()
		file, err := sys.FileOf(fd)
		if err != nil {
			panic(err)
		}
		again, err := sys.Dup(fd)
		if err != nil {
			panic(err)
		}
		data := strconv.FormatUint(file.Ino, 10)
		k.says(opPut, "next", data, fd)
		k.says(opPut, "held", data, again)
		k.says(opDrop, "next", "")
		if n%4 == 3 { // the file of records is renewed
			k.mu.Lock()
			k.store.end = stateBytes
			k.mu.Unlock()
		}
	}
}

// TestStoreUnderKills kills a keeper at any moment of its changes. The next one finds the whole of
// each entry, and the one that is always there.
func TestStoreUnderKills(t *testing.T) {
	if os.Getenv(victimVariable) != "" {
		victim()
	}
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	kills := 40
	if testing.Short() {
		kills = 8
	}
	renewed := 0
	for n := range kills {
		f := newFakeStore(t, 100)
		cmd := exec.Command(os.Args[0], "-test.run=^TestStoreUnderKills$")
		cmd.Env = append(os.Environ(), victimVariable+"=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, time.Minute, "there are changes", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.said) > 20
		})
		time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond) // the moment of the kill
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		s, err := newStore() // what was said before is heard before this
		if err == nil {
			err = s.await()
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = sys.CloseFD(s.conn)
		l := f.next()
		if err := l.read(); err != nil {
			t.Fatalf("kill %d: %v, of %v", n, err, l.fds)
		}
		if _, number, _ := cutLast(l.state); number > 1 {
			renewed++
		}
		k := newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
		if !k.takeLeft(l, nil) || !k.has("held") {
			t.Fatalf("kill %d: the shelf is %v", n, k.shelf)
		}
		k.mu.Lock()
		for _, e := range k.shelf {
			var ino uint64
			if e.name == StoreEntry {
				continue
			}
			if err := json.Unmarshal(e.data, &ino); err != nil || len(e.fds) != 1 || fileOf(t, e.fds[0]).Ino != ino {
				t.Errorf("kill %d: %s is of file %d: %v", n, e.name, ino, err)
			}
		}
		k.mu.Unlock()
		endStoring(k)
	}
	if renewed == 0 {
		t.Error("no kill came behind a renewal of the records")
	}
}
