package proof

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// stored is a tree as the library keeps it.
type stored []tlog.Hash

func (s stored) ReadHashes(indexes []int64) (all []tlog.Hash, err error) {
	for _, i := range indexes {
		all = append(all, s[i])
	}
	return all, nil
}

func (s *stored) add(t testing.TB, n int64, leaf tlog.Hash) {
	more, err := tlog.StoredHashesForRecordHash(n, leaf, *s)
	if err != nil {
		t.Fatal(err)
	}
	*s = append(*s, more...)
}

// Root and path of a tree of any size, and of any leaf in it, are those that golang.org/x/mod's
// tlog finds.
func TestTreeIsTheLibrarys(t *testing.T) {
	const most = 70
	var all stored
	for size := int64(1); size <= most; size++ {
		all.add(t, size-1, tlog.RecordHash([]byte{byte(size - 1)}))
		root, err := tlog.TreeHash(size, all)
		if err != nil {
			t.Fatal(err)
		}
		for leaf := range size {
			var tree Tree
			tree.Follow(leaf)
			for n := range size {
				tree.Add(tlog.RecordHash([]byte{byte(n)}))
			}
			want, err := tlog.ProveRecord(size, leaf, all)
			if err != nil {
				t.Fatal(err)
			}
			if tree.Root() != root || fmt.Sprint(tree.Path()) != fmt.Sprint([]Hash(want)) {
				t.Fatalf("leaf %d of %d: root %v, path %v; want %v, %v", leaf, size, tree.Root(), tree.Path(), root,
					want)
			}
		}
	}
}

func rngOf(t testing.TB) *rand.Rand { return rand.New(rand.NewPCG(testenv.Seed(t), 9)) }

func named(number uint32) Stream {
	return Stream{Source: fmt.Sprintf("line %d/é", number), Frame: "tally128", Quarantine: number%2 == 1}
}

// world is a log of some segments, with a key.
type world struct {
	private Signer
	entries map[uint64]Entry
	key     Verifier
	other   Verifier
	heads   []Head
	proofs  []Proof
	beside  []Proof // of another entry of the same segment, up to its head
}

func newWorld(t testing.TB, rng *rand.Rand) *world {
	t.Helper()
	w := &world{entries: map[uint64]Entry{}}
	private, public, err := NewKey("plant-7.example.org/line-a")
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := NewKey("plant-7.example.org/line-a")
	if err != nil {
		t.Fatal(err)
	}
	if w.private, err = ParseSigner([]byte(private + "\n")); err != nil {
		t.Fatal(err)
	}
	if w.key, err = ParseVerifier(public + "\n"); err != nil {
		t.Fatal(err)
	}
	if w.other, err = ParseVerifier(other); err != nil {
		t.Fatal(err)
	}
	seq := uint64(1)
	for range 11 {
		var entries []Entry
		for range 1 + rng.IntN(200) {
			e := Entry{Seq: seq, Time: rng.Int64(), Stream: rng.Uint32N(5), Kind: 1, Data: make([]byte, rng.IntN(200))}
			for i := range e.Data {
				e.Data[i] = byte(rng.Uint32())
			}
			w.entries[seq] = e
			entries, seq = append(entries, e), seq+1
		}
		at := entries[rng.IntN(len(entries))]
		salt := rng.Uint32()
		prove := func(seq uint64) (Proof, bool) {
			var s Segment
			s.Reset(seq)
			for _, e := range entries {
				s.Add(e)
			}
			return s.Prove(Head{
				Log: [16]byte{1, 2, 3}, Salt: salt, First: entries[0].Seq,
				Last: entries[len(entries)-1].Seq,
			}, named)
		}
		p, ok := prove(at.Seq)
		q, also := prove(entries[rng.IntN(len(entries))].Seq)
		if !ok || !also || p.Head != q.Head {
			t.Fatalf("entry %d is not found, or the heads differ: %v, %v", at.Seq, p.Head, q.Head)
		}
		w.heads, w.proofs, w.beside = append(w.heads, p.Head), append(w.proofs, p), append(w.beside, q)
	}
	for i := range w.proofs {
		var tree Tree
		tree.Follow(int64(i))
		for _, h := range w.heads {
			tree.Add(h.Hash())
		}
		p := &w.proofs[i]
		p.Leaf, p.LeafPath = int64(i), tree.Path()
		if p.Checkpoint, err = (Checkpoint{w.private.Name(), tree.Size(), tree.Root()}).Sign(w.private); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// A proof goes through its text, and holds; its upper half is one that stock tools check: the note,
// and the record of the log's tree, taken from the text by hand.
func TestProofHoldsAndIsStock(t *testing.T) {
	rng := rngOf(t)
	w := newWorld(t, rng)
	for _, p := range w.proofs {
		text := p.Marshal()
		q, err := Parse(text)
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		c, by, err := q.Check(w.key)
		if err != nil || by == "" || c.Size != int64(len(w.heads)) {
			t.Fatalf("%v, signed by %q:\n%s", err, by, text)
		}
		if _, _, err := q.Check(w.other); !errors.Is(err, ErrForged) {
			t.Errorf("another key of the same name: %v", err)
		}
		if _, by, err := q.Check(); err != nil || by != "" {
			t.Errorf("without a key: %v, signed by %q", err, by)
		}
		stock(t, string(text), w.key, true)
	}
}

// stock checks the upper half of a proof by the library alone.
func stock(t testing.TB, text string, key note.Verifier, want bool) {
	t.Helper()
	_, rest, _ := strings.Cut(text, "tallywheel-segment@v1\n")
	leaf, rest, _ := strings.Cut(rest, "\n\nc2sp.org/tlog-proof@v1\nindex ")
	way, checkpoint, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(way, "\n")
	index, err := strconv.ParseInt(lines[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var path tlog.RecordProof
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			t.Fatal(err)
		}
		path = append(path, h)
	}
	n, err := note.Open([]byte(checkpoint), note.VerifierList(key))
	if err != nil {
		t.Fatalf("the library does not open the checkpoint: %v", err)
	}
	head := strings.Split(n.Text, "\n")
	size, err := strconv.ParseInt(head[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	root, err := tlog.ParseHash(head[2])
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckRecord(path, size, root, index,
		tlog.RecordHash([]byte("tallywheel-segment@v1\n"+leaf+"\n"))); (err == nil) != want {
		t.Errorf("the library says %v of the record", err)
	}
}

// Of ten thousand changes to a proof, its checkpoint and its key, none is accepted; but that
// another sequence may name another record of the page, which the log has.
func TestForgedProofs(t *testing.T) {
	rng := rngOf(t)
	w := newWorld(t, rng)
	kinds := map[string]int{}
	for range 10_000 {
		i := rng.IntN(len(w.proofs))
		good := w.proofs[i].Marshal()
		kind, forged := forge(rng, w, i, good)
		if bytes.Equal(forged, good) {
			continue
		}
		kinds[kind]++
		p, err := Parse(forged)
		if err != nil {
			continue
		}
		if _, _, err := p.Check(w.key); err == nil &&
			(p.Entry.equal(w.proofs[i].Entry) || !p.Entry.equal(w.entries[p.Entry.Seq])) {
			t.Fatalf("%s is accepted:\n%s\nof\n%s", kind, forged, good)
		}
	}
	for _, kind := range []string{"bit", "byte", "cut", "twice", "line", "field", "signed by another"} {
		if kinds[kind] < 100 {
			t.Errorf("%d forgeries of kind %s", kinds[kind], kind)
		}
	}
}

// forge changes a proof in one of several ways.
func forge(rng *rand.Rand, w *world, i int, good []byte) (kind string, forged []byte) {
	at, b := rng.IntN(len(good)), bytes.Clone(good)
	other := w.proofs[(i+1+rng.IntN(len(w.proofs)-1))%len(w.proofs)]
	switch rng.IntN(8) {
	case 0:
		b[at] ^= 1 << rng.IntN(8)
		return "bit", b
	case 1:
		b[at] = byte(rng.Uint32())
		return "byte", b
	case 2:
		to := at + rng.IntN(len(b)-at)
		return "cut", append(b[:at], b[to:]...)
	case 3:
		to := at + rng.IntN(min(80, len(b)-at))
		return "twice", append(b[:to:to], b[at:]...)
	case 4: // a line of another proof in the place of one
		mine, theirs := strings.SplitAfter(string(b), "\n"), strings.SplitAfter(string(other.Marshal()), "\n")
		mine[rng.IntN(len(mine))] = theirs[rng.IntN(len(theirs))]
		return "line", []byte(strings.Join(mine, ""))
	case 5:
		return "signed by another", resigned(w.proofs[i])
	}
	return "field", forgeField(rng, w.proofs[i], other, w.beside[i]).Marshal()
}

// resigned is a proof whose checkpoint somebody else has signed by a key of the same name.
func resigned(p Proof) []byte {
	c, _, _ := OpenCheckpoint(p.Checkpoint)
	private, _, _ := NewKey(c.Origin)
	s, _ := ParseSigner([]byte(private))
	p.Checkpoint, _ = c.Sign(s)
	return p.Marshal()
}

// forgeField changes what a proof says, in its form.
func forgeField(rng *rand.Rand, p, other, beside Proof) Proof {
	c, _, _ := OpenCheckpoint(p.Checkpoint)
	signature := p.Checkpoint[len(c.text()):]
	p.Path, p.LeafPath = append([]Hash{}, p.Path...), append([]Hash{}, p.LeafPath...)
	flip := func(path []Hash) {
		if len(path) > 0 {
			path[rng.IntN(len(path))][rng.IntN(32)] ^= 1 << rng.IntN(8)
		}
	}
	switch rng.IntN(20) {
	case 16: // another source of the same segment
		p.Stream, p.StreamIndex, p.StreamPath = beside.Stream, beside.StreamIndex, beside.StreamPath
	case 17: // another record with the way of this one
		p.Entry, p.Page = beside.Entry, beside.Page
	case 18: // another sequence: the page may have that, too
		p.Entry.Seq += uint64(rng.IntN(20)) - 10
	case 0:
		p.Page = append(bytes.Clone(p.Page), 0)
	case 1, 2, 3, 4: // the page with one entry that is another
		p.Page = pageWith(p, rng)
	case 5:
		p.Stream.Source += "x"
	case 6:
		p.Stream.Quarantine = !p.Stream.Quarantine
	case 7:
		p.Index++
	case 8:
		flip(p.Path)
	case 9:
		flip(p.LeafPath)
	case 10:
		p.Head.Entries++
	case 19:
		p.Head.Pages++
	case 11:
		p.Head.Log[0]++
	case 12:
		p.Head.Last += uint64(1 + rng.IntN(100))
	case 13:
		p.Head, p.Leaf, p.LeafPath = other.Head, other.Leaf, other.LeafPath
	case 14:
		p.Leaf++
	case 15: // another tree under the same signature
		c.Root[rng.IntN(32)]++
		p.Checkpoint = append([]byte(c.text()), signature...)
	}
	return p
}

// pageWith is the page of a proof, in its form, on which the entry is another.
func pageWith(p Proof, rng *rand.Rand) []byte {
	var of page
	of.reset(p.Entry.Stream)
	if rng.IntN(4) == 0 {
		of.reset(p.Entry.Stream ^ 1)
	}
	for seq := p.Head.First; seq <= p.Head.Last; seq++ {
		e, err := entryOn(p.Page, seq)
		if err != nil {
			continue
		}
		if seq == p.Entry.Seq {
			switch rng.IntN(5) {
			case 0:
				e.Seq++
			case 1:
				e.Time++
			case 2:
				e.Kind ^= 1 << rng.IntN(32)
			case 3:
				e.Data = append(bytes.Clone(e.Data), 0)
			}
		}
		of.add(&e)
	}
	return of.b[1:]
}

// A log that has signed a record under a sequence which its segment has not proves nothing.
func TestSequenceOutsideOfItsSegment(t *testing.T) {
	for _, seq := range []uint64{9, 21} {
		var s Segment
		s.Reset(seq)
		s.Add(Entry{Seq: seq, Kind: 1})
		p, ok := s.Prove(Head{First: 10, Last: 20}, named)
		if !ok {
			t.Fatal("the entry is not found")
		}
		p.Checkpoint, _ = Checkpoint{"a", 1, p.Head.Hash()}.Sign(nil)
		if _, _, err := p.Check(); err == nil {
			t.Errorf("record %d is taken for one of 10 to 20", seq)
		}
	}
}

// The second form of the same signature, which base64 allows, is refused, too.
func TestOneFormOfASignature(t *testing.T) {
	w := newWorld(t, rngOf(t))
	good := string(w.proofs[0].Checkpoint)
	at := strings.LastIndex(good, "=") - 1
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	forged := good[:at] + string(digits[strings.IndexByte(digits, good[at])^1]) + good[at+1:]
	if _, err := note.Open([]byte(forged), note.VerifierList(w.key)); err != nil {
		t.Fatalf("the library refuses it, and the test shows nothing: %v", err)
	}
	if _, _, err := OpenCheckpoint([]byte(forged), w.key); !errors.Is(err, ErrForged) {
		t.Errorf("it is taken: %v", err)
	}
}

// A checkpoint that nobody signed is read without a key, and refused with one; one of another key's
// name is refused by the key that signed it.
func TestCheckpoints(t *testing.T) {
	w := newWorld(t, rngOf(t))
	c := Checkpoint{Unsigned([16]byte{7}), 3, Hash{1}}
	text, err := c.Sign(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, by, err := OpenCheckpoint(text); got != c || by != "" || err != nil {
		t.Errorf("%v, %q, %v; want %v", got, by, err, c)
	}
	if _, _, err := OpenCheckpoint(text, w.key); !errors.Is(err, ErrUnsigned) {
		t.Errorf("with a key: %v", err)
	}
	c.Origin = "another.example.org/line"
	if text, err = c.Sign(w.private); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenCheckpoint(text, w.key); !errors.Is(err, ErrForged) {
		t.Errorf("of another origin: %v", err)
	}
	root := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, bad := range []string{
		"", "a\n", "a\n1\n", "a\n1\n" + root, "a\n01\n" + root + "\n", "a\n0\n" + root + "\n", "a\n-1\n" + root + "\n",
		"\n1\n" + root + "\n",
		"a\n1\n" + root + "\nmore\n", "a\n1\n" + root[1:] + "\n", "a\n1\n" + root + "\n\n",
		"a\n1\n" + root + "\n\n— a x\n",
	} {
		if c, _, err := OpenCheckpoint([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, c)
		}
	}
	for _, name := range []string{"", "a b", "a+b", "a\nb"} {
		if _, _, err := NewKey(name); err == nil {
			t.Errorf("a key is named %q", name)
		}
	}
}

// A head goes through its two forms; in a file of heads each bit counts, and so does its place.
func TestHeadForms(t *testing.T) {
	rng := rngOf(t)
	w := newWorld(t, rng)
	for i, h := range w.heads {
		if got, err := parseHead(h.Leaf()); got != h || err != nil {
			t.Errorf("%v, %v; want %v", got, err, h)
		}
		b := h.Encode(int64(i))
		if got, ok := DecodeHead(b, int64(i)); got != h || !ok || len(b) != HeadBytes {
			t.Errorf("%v, %v; want %v", got, ok, h)
		}
		if _, ok := DecodeHead(b, int64(i+1)); ok {
			t.Errorf("leaf %d is taken for the next", i)
		}
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		if got, ok := DecodeHead(b, int64(i)); ok {
			t.Errorf("with a bit changed it is %v", got)
		}
	}
	for _, s := range []Stream{{}, {7, `a "b" \`, "tally128", true}, {1 << 31, "line-1/10.0.0.1:4711", "", false}} {
		if got, err := parseStream(strings.TrimSuffix(s.leaf(), "\n")); got != s || err != nil {
			t.Errorf("%v, %v; want %v", got, err, s)
		}
	}
}

// FuzzParse reads what anybody may send: what is taken is in its form.
func FuzzParse(f *testing.F) {
	w := newWorld(f, rand.New(rand.NewPCG(1, 2)))
	f.Add(w.proofs[0].Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err == nil && !bytes.Equal(p.Marshal(), b) {
			t.Errorf("%q has another form", b)
		}
		if err == nil {
			_, _, _ = p.Check(w.key)
		}
	})
}

// BenchmarkSegment is what a head costs of records of 128 bytes.
func BenchmarkSegment(b *testing.B) {
	e := Entry{Kind: 4, Data: make([]byte, 136)}
	var s Segment
	b.SetBytes(128)
	b.ReportAllocs()
	for i := range b.N {
		e.Seq, e.Stream = uint64(i), uint32(i/16%8)
		s.Add(e)
	}
}
