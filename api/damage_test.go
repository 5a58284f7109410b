package api

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/config"
)

// change replaces what stands once in the segments of a log.
func change(t *testing.T, dir string, from, to []byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(b, from)
		if at < 0 {
			continue
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(to, int64(at)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("% X… is in none of %v", from[:8], names)
}

// A stream that meets damage says where it is and what to do, once, and stays: a client that was
// cut off would come back for ever. Once the bytes are back it goes on, and passes over no record.
func TestStreamAtDamage(t *testing.T) { eachEngine(t, testStreamAtDamage) }

func testStreamAtDamage(t *testing.T) {
	a := newDevice(t)
	var dir string
	g := start(t, func(c *config.Config) { dir = c.Log.Dir }, a.source("a"))
	defer stop(t, g)
	s := serve(t, g)
	defer s.Close()
	c := a.connected(t)
	defer c.Close()
	write(t, c, frames(0, 5))
	stored(t, g, "a", 5)
	write(t, c, frames(5, 5))
	stored(t, g, "a", 10)
	whole := frames(7, 1) // record 8
	hurt := bytes.Clone(whole)
	hurt[len(hurt)-1] ^= 1
	change(t, dir, whole, hurt)

	e := openStream(t, s.URL()+"api/v1/stream?from_seq=1", "")
	defer e.close()
	e.next(t) // the id
	var damage damageEvent
	var ev event
	last := uint64(0)
	for ev = e.next(t); ev.name == "record"; ev = e.next(t) {
		last++
	}
	err := json.Unmarshal([]byte(ev.data), &damage)
	if err != nil || ev.name != "damage" || last < 5 || last > 7 || damage.From != last+1 ||
		!strings.Contains(damage.Error, "is damaged at offset") || !strings.Contains(damage.Error, "log repair") {
		t.Fatalf("behind record %d: %+v, %v; want the damage", last, ev, err)
	}
	if parts := strings.Split(ev.id, "-"); len(parts) != 3 {
		t.Errorf("the id of the damage is %q: a client could not go on by it", ev.id)
	}
	change(t, dir, hurt, whole)
	for last < 10 {
		last++
		e.record(t, last)
	}
}
