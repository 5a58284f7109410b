package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// hurtFrame turns a bit of a frame in the log, and returns it as it was, and as it is.
func hurtFrame(t *testing.T, dir string, number uint64) (whole, hurt []byte) {
	t.Helper()
	whole = frames(number, 1)
	hurt = bytes.Clone(whole)
	hurt[len(hurt)-1] ^= 1
	change(t, dir, whole, hurt)
	return whole, hurt
}

// A stream that meets damage says where it is and what to do, once, and stays: a client that was
// cut off would come back for ever. Once the bytes are back it goes on, and passes over no record.
func TestStreamAtDamage(t *testing.T) { eachEngine(t, testStreamAtDamage) }

func testStreamAtDamage(t *testing.T) {
	g, s, c := served(t, nil, device.source)
	write(t, c, frames(0, 5))
	stored(t, g, "a", 5)
	write(t, c, frames(5, 5))
	stored(t, g, "a", 10)
	whole, hurt := hurtFrame(t, g.Config().Log.Dir, 7) // record 8

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
	change(t, g.Config().Log.Dir, hurt, whole)
	for last < 10 {
		last++
		e.record(t, last)
	}
}

// Damage hides what it hit and nothing else, however near it is: a page or a stream that begins
// behind it begins, and an id of a record that cannot be read any more is as good as its number.
// What begins in it is told so: a page as an error, a stream by an event.
func TestWhatBeginsBehindDamage(t *testing.T) { eachEngine(t, testWhatBeginsBehindDamage) }

func testWhatBeginsBehindDamage(t *testing.T) {
	g, s, c := served(t, nil, device.source)
	for n := range uint64(10) { // a batch each
		write(t, c, frames(n, 1))
		stored(t, g, "a", n+1)
	}
	url := s.URL() + "api/v1/"
	_, p := pageOf(t, url+"records?limit=4")
	id := p.Cursor // of record 4
	hurtFrame(t, g.Config().Log.Dir, 3)
	for query, want := range map[string]string{
		"from_seq=5": "[5 6 7 8 9 10]", "cursor=" + id: "[5 6 7 8 9 10]", "from_seq=8&limit=2": "[8 9]",
		"from_seq=1":   "[1 2 3]",
		"order=newest": "[10 9 8 7 6 5]", "order=newest&from_seq=6": "[6 5]", "order=newest&from_seq=3": "[3 2 1]",
	} {
		if seqs, _ := pageOf(t, url+"records?"+query); fmt.Sprint(seqs) != want {
			t.Errorf("%s: %v, want %s", query, seqs, want)
		}
	}
	for _, query := range []string{"from_seq=4", "order=newest&from_seq=4"} {
		if code, body := get(t, url+"records?"+query, nil); code != 500 ||
			!strings.Contains(body, "is damaged at offset") {
			t.Errorf("%s: %d, %s; want the damage", query, code, body)
		}
	}
	for query, seq := range map[string]uint64{"from_seq=5": 5, "cursor=" + id: 5, "from_seq=9": 9, "": 11} {
		e := openStream(t, url+"stream?"+query, "")
		e.next(t) // the id
		if seq == 11 {
			write(t, c, frames(10, 1))
		}
		e.record(t, seq)
		e.close()
	}
	e := openStream(t, url+"stream?from_seq=4", "")
	defer e.close()
	e.next(t)
	if ev := e.next(t); ev.name != "damage" || !strings.Contains(ev.data, `"from":4,`) {
		t.Errorf("a stream that begins in damage: %+v", ev)
	}
}
