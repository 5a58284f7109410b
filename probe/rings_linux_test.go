package probe

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
)

// TestRings: the rings of this process are listed with the sizes that they have, and those with a
// polling thread say so.
func TestRings(t *testing.T) {
	before, err := Rings(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for { // so that of the descriptors of the rings one is 9 and the other has two digits
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Fd() >= 8 {
			break
		}
	}
	for _, c := range []uring.Config{{Entries: 64}, {Entries: 8, SQPoll: true, SQPollIdle: time.Minute}} {
		r, err := uring.New(c)
		if err != nil {
			t.Skipf("SKIPPED: no io_uring here: %v; run this where the kernel lets it", err)
		}
		defer r.Close()
	}
	all, err := Rings(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all,
		func(r Ring) bool { return slices.ContainsFunc(before, func(b Ring) bool { return b.FD == r.FD }) })
	if len(all) != 2 || all[0].Submissions != 64 || all[0].Completions < 64 || all[0].SQPoll ||
		all[1].Submissions != 8 || !all[1].SQPoll || all[1].Thread <= 0 {
		t.Errorf("rings: %v", all)
	}
}

// TestParseRing: what the kernel says, lists of entries below it included.
func TestParseRing(t *testing.T) {
	const said = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nSqMask:\t0x3f\nSqHead:\t5\nSqTail:\t7\nCachedSqHead:\t7\nCqMask:\t0x7f\nCqHead:\t4294967295\nCqTail:\t2\nCachedCqTail:\t2\nSQEs:\t2\n" +
		"    5: opcode:NOP, fd:-1, flags:0, off:0, addr:0x0, rw_flags:0x0, buf_index:0 user_data:1\nCQEs:\t3\nSqThread:\t77\nSqThreadCpu:\t1\nUserFiles:\t2\n    0: x\nUserBufs:\t4\nPollList:\n"
	want := Ring{
		Submissions: 64, Completions: 128, SQPoll: true, Thread: 77, ThreadCPU: 1, Files: 2, Buffers: 4,
		SubmissionsLeft: 2, CompletionsLeft: 3,
	}
	if got := parseRing([]byte(said)); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := parseRing(nil); got != (Ring{}) {
		t.Errorf("of nothing: %+v", got)
	}
	if text := want.String(); !strings.Contains(text, "64 submissions, 128 completions, thread 77 polls, on CPU 1") {
		t.Error(text)
	}
	if _, err := Rings(-1); err == nil {
		t.Error("process -1 has rings")
	}
}
