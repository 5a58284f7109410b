package proof

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// Proof shows that an entry was in a log.
type Proof struct {
	Entry Entry  // as it stands on the page
	Page  []byte // entries of one stream, in the form that FORMAT.md of package seglog draws
	Index int64  // of the page among the segment's
	Path  []Hash

	Stream      Stream
	StreamIndex int64 // among the segment's streams
	StreamPath  []Hash

	Head     Head
	Leaf     int64 // the head's place in the log's tree
	LeafPath []Hash

	Checkpoint []byte // as OpenCheckpoint reads it
}

// The text of a proof has four parts with an empty line between, of which the last is a tlog-proof.
const (
	proofTitle = "tallywheel-proof@v1"
	tlogTitle  = "c2sp.org/tlog-proof@v1"
	// MaxProof is the most bytes of a proof: the largest record of a log, and some hashes.
	MaxProof = 24 << 20
	maxPath  = 64 // hashes beside a way
)

// Marshal is the proof as text.
func (p Proof) Marshal() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nentry %d on page %d %s\n", proofTitle, p.Entry.Seq, p.Index,
		base64.StdEncoding.EncodeToString(p.Page))
	writePath(&b, p.Path)
	fmt.Fprintf(&b, "\nstream %d %s", p.StreamIndex, p.Stream.leaf())
	writePath(&b, p.StreamPath)
	fmt.Fprintf(&b, "\n%s\n%s\nindex %d\n", p.Head.Leaf(), tlogTitle, p.Leaf)
	writePath(&b, p.LeafPath)
	b.WriteByte('\n')
	b.Write(p.Checkpoint)
	return b.Bytes()
}

func writePath(b *bytes.Buffer, path []Hash) {
	for _, h := range path {
		fmt.Fprintf(b, "%s\n", h)
	}
}

// ErrForm is a proof that is not in its form.
var ErrForm = errors.New("this is no proof, or not all of it")

// Parse reads a proof. It proves nothing as long as [Proof.Check] has not said so.
func Parse(b []byte) (p Proof, err error) {
	if len(b) > MaxProof {
		return p, fmt.Errorf("%w: it has more than %d bytes", ErrForm, MaxProof)
	}
	parts := strings.SplitN(string(b), "\n\n", 5)
	if len(parts) != 5 {
		return p, ErrForm
	}
	text, ok := strings.CutPrefix(parts[0], proofTitle+"\nentry ")
	page, path, _ := strings.Cut(text, "\n")
	seqText, page, _ := strings.Cut(page, " on page ")
	index, page, _ := strings.Cut(page, " ")
	stream, streamPath, _ := strings.Cut(parts[1], "\n")
	stream, isStream := strings.CutPrefix(stream, "stream ")
	streamIndex, stream, _ := strings.Cut(stream, " ")
	upper, isUpper := strings.CutPrefix(parts[3], tlogTitle+"\nindex ")
	leaf, leafPath, _ := strings.Cut(upper, "\n")
	if !ok || !isStream || !isUpper {
		return p, ErrForm
	}
	p.Checkpoint = []byte(parts[4])
	var seq uint64
	if p.Page, err = base64.StdEncoding.Strict().DecodeString(page); err == nil {
		seq, err = strconv.ParseUint(seqText, 10, 64)
	}
	if err == nil {
		p.Entry, err = entryOn(p.Page, seq)
	}
	if err == nil {
		p.Stream, err = parseStream(stream)
	}
	if err == nil {
		p.Head, err = parseHead(parts[2] + "\n")
	}
	for _, n := range []struct {
		text string
		to   *int64
	}{{index, &p.Index}, {streamIndex, &p.StreamIndex}, {leaf, &p.Leaf}} {
		if err == nil {
			*n.to, err = strconv.ParseInt(n.text, 10, 64)
		}
	}
	for _, way := range []struct {
		text string
		to   *[]Hash
	}{{path, &p.Path}, {streamPath, &p.StreamPath}, {leafPath, &p.LeafPath}} {
		if err == nil {
			*way.to, err = parsePath(way.text)
		}
	}
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrForm, err)
	}
	if !bytes.Equal(p.Marshal(), b) {
		return p, ErrForm
	}
	return p, nil
}

func parsePath(text string) (path []Hash, err error) {
	if text == "" {
		return nil, nil
	}
	lines := strings.Split(text, "\n")
	if len(lines) > maxPath {
		return nil, fmt.Errorf("%d hashes, at most %d", len(lines), maxPath)
	}
	for _, line := range lines {
		h, err := parseHash(line)
		if err != nil {
			return nil, err
		}
		path = append(path, h)
	}
	return path, nil
}

// Check reports whether the proof holds: that the entry is of the stream, on the page, in the
// segment, in the log of the checkpoint, and that one of the keys has signed that; see
// [OpenCheckpoint], also for what it returns.
func (p Proof) Check(keys ...Verifier) (c Checkpoint, by string, err error) {
	if c, by, err = OpenCheckpoint(p.Checkpoint, keys...); err != nil {
		return c, by, err
	}
	h := p.Head
	on, pageErr := entryOn(p.Page, p.Entry.Seq)
	switch {
	case pageErr != nil || !on.equal(p.Entry):
		err = errors.New("the entry is not the one on the page")
	case tlog.CheckRecord(p.Path, int64(h.Pages), h.PagesRoot, p.Index, tlog.RecordHash(p.Page)) != nil:
		err = errors.New("the page is not the one in the segment")
	case !h.Covers(p.Entry.Seq):
		err = errors.New("the entry's sequence is not one of the segment's")
	case p.Stream.Number != p.Entry.Stream:
		err = errors.New("the stream is not the entry's")
	case tlog.CheckRecord(p.StreamPath, int64(h.Streams), h.StreamsRoot, p.StreamIndex,
		tlog.RecordHash([]byte(p.Stream.leaf()))) != nil:
		err = errors.New("the stream is not the one that the segment names")
	case tlog.CheckRecord(p.LeafPath, c.Size, c.Root, p.Leaf, h.Hash()) != nil:
		err = errors.New("the segment is not in the log of the checkpoint")
	}
	if err != nil {
		return c, "", fmt.Errorf("the proof does not hold: %w", err)
	}
	return c, by, nil
}
