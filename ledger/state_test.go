package ledger

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/pack"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"pgregory.net/rapid"
)

// leaves calls visit with each field of v that is no struct, pointer, slice or map, in whatever
// those it lies. Where make is set, it makes one element in each of them first.
func leaves(v reflect.Value, path string, make bool, visit func(path string, v reflect.Value)) {
	if !v.CanSet() { // it is not exported
		v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			at := v.Type().Name() + "." + v.Type().Field(i).Name
			if _, isElsewhere := notInState[at]; !isElsewhere {
				leaves(v.Field(i), path+"."+v.Type().Field(i).Name, make, visit)
			}
		}
	case reflect.Pointer:
		if make {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if !v.IsNil() {
			leaves(v.Elem(), path, make, visit)
		}
	case reflect.Slice:
		if make {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			leaves(v.Index(i), fmt.Sprint(path, "[", i, "]"), make, visit)
		}
	case reflect.Map:
		if make {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf("cause"), reflect.ValueOf(uint64(len(path))))
		}
		visit(path, v)
	default:
		visit(path, v)
	}
}

// notInState is the fields that are no part of a state, each with the reason.
var notInState = map[string]string{
	"Book.frameSize": "a setting", "rhythm.Rhythm": "a setting",
	"Book.streams": "the test has one", "Book.known": "the test has one",
	"Book.active": "a list of streams", "Book.resting": "a list of streams", "Book.recent": "a stream",
	"sequence.in": "its place", "sequence.older": "its place", "sequence.newer": "its place",
}

// fullBook has a value in each field, and a stream that sends, and one that rests.
func fullBook(t *testing.T) *Book {
	t.Helper()
	n := uint64(1000)
	fill := func(path string, v reflect.Value) {
		n += 7
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int64:
			v.SetInt(-int64(n))
		case reflect.Uint32, reflect.Uint64:
			v.SetUint(n)
		case reflect.String:
			v.SetString(path)
		case reflect.Map:
		default:
			t.Fatalf("%s is a %v: fill it, and describe it", path, v.Kind())
		}
	}
	b := NewBook(128)
	leaves(reflect.ValueOf(b).Elem(), "book", true, fill)
	for i, l := range []*lineup{&b.active, &b.resting} {
		q := &sequence{}
		leaves(reflect.ValueOf(q).Elem(), "sequence", true, fill)
		q.first, q.next = middle-uint64(3+i), middle+1000
		q.gaps = []gap{{middle + 3, middle + 9, 2, 5, 6}}
		b.streams[q.id], b.known[q.id.Device] = q, true
		l.add(q)
		b.recent, b.recentK = q, q.id
	}
	return b
}

// fields is each of a book, and of its streams, in their order.
func fields(b *Book) map[string]string {
	all := map[string]string{"known": fmt.Sprint(b.known), "recent": fmt.Sprint(b.recent == b.streams[b.recentK])}
	note := func(path string, v reflect.Value) { all[path] = fmt.Sprint(v) }
	leaves(reflect.ValueOf(b).Elem(), "book", false, note)
	for path := range all {
		if strings.HasPrefix(path, "book.ack.given") { // whoever goes on is given it again
			delete(all, path)
		}
	}
	for name, l := range map[string]*lineup{"active": &b.active, "resting": &b.resting} {
		i := 0
		for q := l.oldest; q != nil; q = q.newer {
			leaves(reflect.ValueOf(q).Elem(), fmt.Sprint(name, i), false, note)
			all[fmt.Sprint(name, i, " is in")] = fmt.Sprint(q.in == l, b.streams[q.id] == q)
			i++
		}
		all[name] = fmt.Sprint(l.n, i)
	}
	return all
}

// restored is a new book that goes on behind b.
func restored(t testing.TB, b *Book, most int) *Book {
	t.Helper()
	state := b.State(most)
	if len(state) > most {
		t.Fatalf("a state of %d bytes, want at most %d", len(state), most)
	}
	n := NewBook(b.frameSize)
	n.Expect(b.rhythm.Rhythm)
	if err := n.Restore(state); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestStateHasEachField(t *testing.T) {
	b := fullBook(t)
	want, got := fields(b), fields(restored(t, b, 64<<10))
	if len(want) < 90 {
		t.Errorf("%d fields: the test looks at too few", len(want))
	}
	for path, v := range want {
		if v == "0" || v == "false" || v == "" {
			t.Errorf("%s is %q: the test shows nothing", path, v)
		}
		if got[path] != v {
			t.Errorf("%s is %q, want %q: describe it", path, got[path], v)
		}
	}
}

// life is what becomes of a source, at random. Each step takes the same numbers for any book.
type life struct {
	rng   *rand.Rand
	next  [4]uint64 // of each device
	clock time.Duration
}

func (l *life) step(b *Book) {
	l.clock += time.Duration(l.rng.IntN(30)) * time.Millisecond
	b.At(1e18 + int64(l.clock))
	device := l.rng.IntN(len(l.next))
	id := Stream{uint32(device), uint32(l.next[device] >> 9)} // a new epoch now and then
	p := Position{
		Device: id.Device, Epoch: id.Epoch, Last: l.next[device],
		Gaps: []Gap{{From: l.next[device] - 9, To: l.next[device] - 7}},
	}
	cause := []string{"a", "b", "c"}[l.rng.IntN(3)]
	n := l.rng.IntN(9)
	switch l.rng.IntN(30) {
	case 0:
		corrupt(b, 1+n*20)
	case 1:
		b.Read(n)
		b.Skip(n)
		b.Quarantine(n)
	case 2:
		b.Read(64)
		b.Plain(64)
	case 3:
		b.Drop(cause, uint64(n))
		b.Unread(cause, uint64(n))
		b.Refuse(cause, uint64(n))
	case 4:
		b.OutageBegins(int64(l.clock), cause)
	case 5:
		b.OutageGoesOn(cause)
		b.OutageEnds(int64(l.clock))
	case 6:
		n := uint64(n)
		b.BeginAck(&Kernel{Overrun: &n})
	case 7:
		b.EndAck(n > 2)
	case 8:
		b.Resume(p)
	case 9:
		b.Advance(p)
	case 10:
		b.Stored(uint64(n))
		b.Durable(uint64(n))
		b.Overrun()
	case 11:
		b.Asked(l.clock)
	case 12:
		b.Answered()
		b.TurnOver()
	case 13:
		b.Unanswered()
	case 14:
		b.Overdue(l.clock, 50*time.Millisecond)
	case 15:
		b.Restart(l.clock)
	case 16:
		b.Partial(l.clock)
	case 17:
		b.NoPartial()
	default:
		b.Arrived(1, l.clock)
		number := l.next[device]
		switch l.rng.IntN(8) {
		case 0:
			number -= uint64(l.rng.IntN(30))
		case 1:
			number += uint64(l.rng.IntN(5))
		case 2:
			number -= 2 * MaxJump
		}
		if number-l.next[device] < 100 {
			l.next[device] = number + 1
		}
		b.Read(128)
		b.Numbered(128, id, number)
	}
}

// A book that is saved and goes on from that, whenever, is the one that was never saved.
func TestStateGoesOn(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		lifeOf := func() *life {
			return &life{rng: rand.New(rand.NewPCG(seed, 1)), next: [4]uint64{0, ^uint64(200), 5, 1 << 40}}
		}
		r := Rhythm{20 * time.Millisecond, time.Millisecond, 70 * time.Millisecond}
		whole, cut := NewBook(128), NewBook(128)
		whole.Expect(r)
		cut.Expect(r)
		one, two := lifeOf(), lifeOf()
		often := rapid.IntRange(1, 100).Draw(t, "often")
		for i := range rapid.IntRange(1, 600).Draw(t, "steps") {
			one.step(whole)
			two.step(cut)
			if i%often != 0 {
				continue
			}
			again := NewBook(128)
			again.Expect(r)
			if err := again.Restore(cut.State(64 << 10)); err != nil {
				t.Fatal(err)
			}
			cut = again
		}
		want, _ := json.Marshal(whole.Sheet("p", "open", Held{}, nil))
		got, _ := json.Marshal(cut.Sheet("p", "open", Held{}, nil))
		if !bytes.Equal(got, want) || !bytes.Equal(cut.State(64<<10), whole.State(64<<10)) {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	})
}

// A state of many streams, gaps and outages has as much as there is room for, the newest.
func TestStateIsBounded(t *testing.T) {
	b := NewBook(128)
	for d := range uint32(MaxPositions) {
		b.Numbered(128, Stream{d, 1}, 0)
	}
	for d := range uint32(100) {
		for i := range uint64(2 * MaxGaps) {
			b.Numbered(128, Stream{d, 1}, 2*i)
		}
	}
	for i := range 2 * maxOutages {
		b.OutageBegins(int64(i), strings.Repeat("long ", 30))
		b.OutageEnds(int64(i))
	}
	for _, most := range []int{LeastState, 64 << 10, 1 << 20, 8 << 20} {
		got := restored(t, b, most)
		f, want := got.Frames(), b.Frames()
		if f.Forgotten <= want.Forgotten && most <= 64<<10 || f.Forgotten != want.Forgotten && most > 64<<10 {
			t.Errorf("%d bytes: %d forgotten, of the book %d", most, f.Forgotten, want.Forgotten)
		}
		if p := got.Sheet("p", "open", Held{Frames: f.OK}, nil); len(p.Unbalanced) > 1 { // its bytes were not posted
			t.Errorf("%d bytes: %v", most, p.Unbalanced)
		}
		if n := len(restored(t, got, most).State(most)); n < most*9/10 && most < 8<<20 {
			t.Errorf("%d of %d bytes are used", n, most)
		}
		last := Stream{99, 1}
		if before, at, ok := got.Follows(last); !ok || at != 4*MaxGaps-2 || before != ^uint64(0) {
			t.Errorf("%d bytes: it does not follow the stream that sent last (%d–%d, %v)", most, before, at, ok)
		}
		if !got.Misses(last, 4*MaxGaps-3, 4*MaxGaps-3) {
			t.Errorf("%d bytes: the last gap is forgotten", most)
		}
	}
}

// A book of one stream fits in any state, with all its counts as large as can be.
func TestLeastStateHoldsAStream(t *testing.T) {
	b := fullBook(t)
	leaves(reflect.ValueOf(b).Elem(), "book", false, func(path string, v reflect.Value) {
		if v.Kind() == reflect.Uint64 && !strings.HasPrefix(path, "book.recentK") {
			v.SetUint(^uint64(0))
		}
	})
	for _, m := range []map[string]uint64{b.frames.Dropped, b.unread, b.refused} {
		for i := range 10 {
			m[fmt.Sprint("a cause of a usual length ", i)] = ^uint64(0)
		}
	}
	b.BeginAck(b.ack.known.Kernel)
	b.EndAck(true)
	b.BeginAck(b.ack.known.Kernel)
	if q, want := len(restored(t, b, LeastState).streams), 2; q != want {
		t.Errorf("%d streams, want %d", q, want)
	}
}

func TestStateThatCannotBe(t *testing.T) {
	whole := fullBook(t).State(64 << 10)
	for i := range whole {
		for _, b := range [][]byte{whole[:i], append(bytes.Clone(whole[:i]), whole[i:]...)} {
			if len(b) > i {
				b[i] ^= 1
			}
			if got := NewBook(128); got.Restore(b) == nil || len(got.streams) > 0 || got.bytes.Read > 0 {
				t.Fatalf("%d bytes of %d, harmed at %d, make a book", len(b), len(whole), i)
			}
		}
	}
}

// A state that somebody has counted a right CRC for is no book, if a book could do harm with it.
func TestUnsoundStates(t *testing.T) {
	for name, harm := range map[string]func(m *image){
		"a stream twice":                   func(m *image) { m.sending = append(m.sending, m.sending[0]) },
		"a stream that is not there":       func(m *image) { m.recentK.Device++ },
		"too many outages":                 func(m *image) { m.outages = make([]Outage, maxOutages+1) },
		"an open outage that is not there": func(m *image) { m.outages = nil },
		"too many streams":                 func(m *image) { m.sending = many(m.sending[0], MaxStreams+1) },
		"too many streams that rest":       func(m *image) { m.silent = many(m.silent[0], MaxPositions) },
		"a gap that is too corrupt":        func(m *image) { m.sending[0].gaps[0].corrupt = 8 },
		"a gap before all":                 func(m *image) { m.sending[0].gaps[0].from = 1 },
		"a gap that ends before it begins": func(m *image) { m.sending[0].gaps[0].to = middle },
		"a gap behind all":                 func(m *image) { m.sending[0].gaps[0].to = middle + 1000 },
		"the same gap twice": func(m *image) {
			m.sending[0].gaps = append(m.sending[0].gaps, m.sending[0].gaps[0])
		},
		"an end before the beginning": func(m *image) { m.sending[0].next, m.sending[0].gaps = 1, nil },
		"too many low frames":         func(m *image) { m.sending[0].low = make([]lowFrame, maxLow+1) },
		"nothing wrong":               func(*image) {},
	} {
		m := fullBook(t).image()
		harm(m)
		if err := NewBook(128).Restore(pack.Seal(StateVersion, m.describe)); (err == nil) != (name == "nothing wrong") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// many is so many streams like one.
func many(like *sequence, n uint32) (all []*sequence) {
	for i := range n {
		q := *like
		q.id.Device += i
		all = append(all, &q)
	}
	return all
}

// FuzzState reads states that somebody has counted a right CRC for: a book of that may be wrong,
// but it works.
func FuzzState(f *testing.F) {
	for seed := range uint64(20) {
		b, l := NewBook(128), &life{rng: rand.New(rand.NewPCG(seed, 2))}
		for range 20 * seed {
			l.step(b)
		}
		state := b.State(64 << 10)
		f.Add(state[:len(state)-crc32.Size])
	}
	f.Fuzz(func(t *testing.T, state []byte) {
		b := NewBook(128)
		b.Expect(Rhythm{20 * time.Millisecond, time.Millisecond, 70 * time.Millisecond})
		if b.Restore(binary.LittleEndian.AppendUint32(bytes.Clone(state),
			crc32.Checksum(state, crc32.MakeTable(crc32.Castagnoli)))) != nil {
			return
		}
		most := 2*len(state) + LeastState
		if again := restored(t, b, most); !bytes.Equal(again.State(most), b.State(most)) {
			t.Error("a state of it makes another book")
		}
		l := &life{rng: rand.New(rand.NewPCG(1, 2))}
		for range 200 {
			l.step(b)
		}
		b.Sheet("p", "open", Held{}, nil)
		b.Positions()
		restored(t, b, LeastState)
	})
}
