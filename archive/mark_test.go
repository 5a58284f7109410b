package archive

import (
	"errors"
	"os"
	"testing"

	"github.com/tallywheel/tallywheel/seglog"
)

func TestMarkAsText(t *testing.T) {
	for _, m := range []Mark{
		{},
		{Seq: 7},
		{Log: [16]byte{1, 15: 2}},
		{Log: [16]byte{9}, Seq: 1 << 40},
		{Log: [16]byte{9}, Seq: 3, Time: 1},
	} {
		if got, err := ParseMark(m.String()); err != nil || got != m {
			t.Errorf("%v is read as %v, %v", m, got, err)
		}
	}
	for _, text := range []string{
		"", "-", "x", "-1", "1e3", "12-3", "00-1", m16 + "-", m16 + "-1-x", m16 + "-1-1-1",
		m16 + "0-1", "18446744073709551615",
	} {
		if m, err := ParseMark(text); err == nil {
			t.Errorf("%q is read as %v", text, m)
		}
	}
}

const m16 = "000102030405060708090a0b0c0d0e0f"

// openLog opens the log of a folder, as every start does.
func openLog(t *testing.T, path string) *seglog.Log {
	t.Helper()
	dir, err := seglog.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 16 << 10, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLog(t *testing.T, l *seglog.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// resume asks a log where to go on behind a mark.
func resume(t *testing.T, l *seglog.Log, m Mark, reason string, from, gone uint64) {
	t.Helper()
	got, err := Live(l, &Streams{}).Resume(m)
	var no *MarkError
	if errors.As(err, &no) {
		if no.Reason != reason || no.From != from || no.Gone != gone {
			t.Errorf("%v: %+v; want %q from %d, %d gone", m, *no, reason, from, gone)
		}
	} else if err != nil || reason != "" || got != from {
		t.Errorf("%v: from %d, %v; want %q from %d", m, got, err, reason, from)
	}
}

// A mark holds as long as its record is in the log, and is refused when another log, another
// record, or none has its number.
func TestMarksHold(t *testing.T) {
	path, before := t.TempDir(), t.TempDir()
	l := openLog(t, path)
	for i := range int64(3) {
		appendRecord(t, l, 1, 100+i, "x")
	}
	closeLog(t, l)
	if err := os.CopyFS(before+"/log", os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, path)
	appendRecord(t, l, 1, 200, "what a power cut takes")
	appendRecord(t, l, 1, 201, "and this")
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	id := l.Identity()
	m3, m4, m5 := Mark{id, 3, 102}, Mark{id, 4, 200}, Mark{id, 5, 201}
	if m, err := Live(l, &Streams{}).Mark(4); err != nil || m != m4 {
		t.Errorf("record 4 has the mark %v, %v", m, err)
	}
	for _, m := range []Mark{{}, {Log: id}, {Seq: 2}, m3, m4, m5, {Seq: 5}} {
		resume(t, l, m, "", m.Seq+1, 0)
	}
	resume(t, l, Mark{Seq: 6}, BeyondEnd, 4, 0)
	resume(t, l, Mark{Log: [16]byte{1}, Seq: 2}, OtherLog, 1, 0)
	closeLog(t, l)

	l = openLog(t, before+"/log") // as if the power had been cut
	resume(t, l, m5, BeyondEnd, 4, 0)
	appendRecord(t, l, 1, 300, "another one")
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	resume(t, l, m3, "", 4, 0)
	resume(t, l, m4, Replaced, 4, 0)
	resume(t, l, m5, BeyondEnd, 4, 0)
	closeLog(t, l)
}

// What retention has removed is told with its count.
func TestMarkBeforeWhatIsKept(t *testing.T) {
	path := gapped(t)
	l := openLog(t, path)
	defer closeLog(t, l)
	first := l.Position().First
	if first < 3 {
		t.Fatal(first)
	}
	resume(t, l, Mark{Log: l.Identity(), Seq: 1, Time: 1}, Removed, first, first-2)
	resume(t, l, Mark{Log: l.Identity()}, Removed, first, first-1)
	resume(t, l, Mark{Log: l.Identity(), Seq: first - 1, Time: 5}, "", first, 0)
}
