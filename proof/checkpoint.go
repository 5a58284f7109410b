package proof

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Checkpoint is the tree of a log at one moment.
type Checkpoint struct {
	Origin string // which log it is of: the name of the key that signs, else Unsigned
	Size   int64  // heads
	Root   Hash
}

// Unsigned is the origin of a log whose checkpoints nobody signs.
func Unsigned(log [16]byte) string { return fmt.Sprintf("tallywheel/%x", log) }

// text is the checkpoint in C2SP's form.
func (c Checkpoint) text() string { return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, c.Root) }

// Sign is the checkpoint as a signed note; nil: the text alone.
func (c Checkpoint) Sign(by Signer) ([]byte, error) {
	if by == nil {
		return []byte(c.text()), nil
	}
	return note.Sign(&note.Note{Text: c.text()}, by)
}

// MaxCheckpoint is the most bytes of a checkpoint, with the signatures of many who saw it.
const MaxCheckpoint = 64 << 10

// Errors that say why a checkpoint is not believed.
var (
	ErrUnsigned = errors.New("nobody has signed the checkpoint")
	ErrForged   = errors.New("the signature of the checkpoint is not that of the key")
)

// OpenCheckpoint reads a checkpoint, and checks that one of the keys has signed it, whose name is
// its origin. Without keys no signature is checked. by is the key that has; "" if none was asked
// for.
func OpenCheckpoint(b []byte, keys ...Verifier) (c Checkpoint, by string, err error) {
	if len(b) > MaxCheckpoint {
		return c, "", fmt.Errorf("a checkpoint has at most %d bytes", MaxCheckpoint)
	}
	text, _, signed := strings.Cut(string(b), "\n\n")
	if signed {
		text += "\n"
	}
	if c, err = parseCheckpoint(text); err != nil {
		return c, "", err
	}
	if !signed {
		if len(keys) > 0 {
			err = ErrUnsigned
		}
		return c, "", err
	}
	n, err := note.Open(b, note.VerifierList(keys...))
	if unverified := (*note.UnverifiedNoteError)(nil); errors.As(err, &unverified) {
		n = unverified.Note
		err = nil
		if len(keys) > 0 {
			err = fmt.Errorf("%w: it says %s", ErrForged, signers(n.UnverifiedSigs))
		}
	} else if err != nil {
		err = fmt.Errorf("%w: %w", ErrForged, err)
	}
	if err == nil && n.Text != text {
		err = fmt.Errorf("%w: it is of another text", ErrForged)
	}
	if err != nil {
		return c, "", err
	}
	all := slices.Concat(n.Sigs, n.UnverifiedSigs)
	if strings.Count(string(b[len(text)+1:]), "\n") != len(all) { // note takes the same one twice …
		return c, "", fmt.Errorf("%w: it is there twice", ErrForged)
	}
	for _, s := range all { // … and two forms of the same bytes
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return c, "", fmt.Errorf("%w: it is not in its form", ErrForged)
		}
	}
	for _, s := range n.Sigs {
		if s.Name == c.Origin {
			return c, KeyName(s.Name, s.Hash), nil
		}
	}
	if len(keys) > 0 {
		return c, "", fmt.Errorf("%w: it is of %q", ErrForged, c.Origin)
	}
	return c, "", nil
}

// KeyName is how a key is shown: its name, and its hash as a signature has it.
func KeyName(name string, hash uint32) string { return fmt.Sprintf("%s+%08x", name, hash) }

func signers(all []note.Signature) string {
	var names []string
	for _, s := range all {
		names = append(names, KeyName(s.Name, s.Hash))
	}
	return strings.Join(names, ", ")
}

// parseCheckpoint reads the text of a checkpoint, which has one form.
func parseCheckpoint(text string) (c Checkpoint, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[0] == "" {
		return c, errors.New("a checkpoint has three lines: origin, size, root")
	}
	c.Origin = lines[0]
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err == nil {
		c.Root, err = parseHash(lines[2])
	}
	if err == nil && (c.Size < 1 || c.text() != text) {
		err = errors.New("it is not in its form")
	}
	if err != nil {
		return c, fmt.Errorf("read checkpoint: %w", err)
	}
	return c, nil
}

// Signer signs checkpoints, and Verifier checks that: keys of golang.org/x/mod/sumdb/note.
type (
	Signer   = note.Signer
	Verifier = note.Verifier
)

// NewKey makes a key for the checkpoints of one log: private signs, public checks.
func NewKey(name string) (private, public string, err error) {
	private, public, err = note.GenerateKey(rand.Reader, name)
	if err == nil {
		if _, err = note.NewVerifier(public); err != nil {
			err = fmt.Errorf("%q: the name of a key has no space and no +, as plant-7.example.org/line-a", name)
		}
	}
	return private, public, err
}

// ParseSigner reads a private key.
func ParseSigner(text []byte) (Signer, error) {
	s, err := note.NewSigner(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, errors.New("want one line, PRIVATE+KEY+NAME+…, as `tallywheel log keygen` makes it")
	}
	return s, nil
}

// ParseVerifier reads a public key.
func ParseVerifier(text string) (Verifier, error) {
	v, err := note.NewVerifier(strings.TrimSpace(text))
	if err != nil {
		return nil, errors.New("want one line, NAME+HASH+KEY, as `tallywheel log keygen` prints it")
	}
	return v, nil
}
