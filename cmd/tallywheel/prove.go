package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/proof"
	"github.com/tallywheel/tallywheel/seglog"
)

const keyUsage = "public key, as 'tallywheel log keygen' prints it, or a file that has it; more than one by more flags"

// heldTo is what the command line of verify holds a log to.
type heldTo struct {
	keys  []string
	since string
}

func (h *heldTo) flags(c *cobra.Command) *cobra.Command {
	c.Flags().StringArrayVar(&h.keys, "key", nil, "one of these must have signed the newest checkpoint: "+keyUsage)
	c.Flags().StringVar(&h.since, "since-checkpoint", "",
		"file with an older checkpoint of the log: what it counted must still be so")
	c.Long = "verify reads everything and reports all damage. Where the log has heads (log.prove), the records of each segment are held to\n" +
		"its head, the heads to the newest checkpoint, with --key that to its signature, and with --since-checkpoint to an older one:\n" +
		"docs/guide/proof.md. With either of the two, what a repair gave up is a failure, too.\n\n" +
		"Exit code: 0 if all is whole, 1 if not, 2 for wrong use."
	return c
}

// read is what the flags name. A table of streams that cannot be read is reported elsewhere.
func (h *heldTo) read(dir string) (held seglog.Held, err error) {
	if held.Keys, err = readKeys(h.keys); err != nil {
		return held, err
	}
	if h.since != "" {
		if held.Since, err = sys.ReadOrdinary(h.since, proof.MaxCheckpoint); err != nil {
			return held, err
		}
	}
	if streams, err := archive.LoadStreams(dir); err == nil {
		held.Named = streams.Named
	}
	return held, nil
}

// readKeys reads public keys, or files of them.
func readKeys(all []string) (keys []proof.Verifier, err error) {
	for _, key := range all {
		if text, err := sys.ReadOrdinary(key, 4<<10); err == nil {
			key = string(text)
		} else if !errors.Is(err, fs.ErrNotExist) && !strings.Contains(key, "+") {
			return nil, err
		}
		k, err := proof.ParseVerifier(key)
		if err != nil {
			return nil, fmt.Errorf("%w: --key: %w", errUsage, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// provenLine says how far a log is proven.
func provenLine(p seglog.Proven) string {
	text := fmt.Sprintf("what its head says: %s", several(p.Segments, "segment"))
	if p.Size > 0 {
		text += fmt.Sprintf("; the checkpoint of %q counts %s", p.Checkpoint, several(uint64(p.Size), "head"))
	}
	switch {
	case p.SignedBy != "":
		text += ", signed by " + p.SignedBy
	case p.Size > 0:
		text += "; no signature was checked"
	}
	for i, s := range p.Unproven {
		if i == 3 {
			text += fmt.Sprintf("; and %d more runs", len(p.Unproven)-i)
			break
		}
		text += fmt.Sprintf("; %d to %d are not proven yet", s.From, s.To)
	}
	return text
}

// prove is the verb that makes a proof.
func (v *logView) prove() *cobra.Command {
	return &cobra.Command{
		Use: "prove SEQ", Short: "print what proves to others that a record is in the log",
		Long: "prove prints a proof of the record with that sequence, which `tallywheel prove --check FILE` checks without the log, or anybody\n" +
			"who knows C2SP's tlog-proof: docs/guide/proof.md. A record can be proven once its segment is full and has its head.",
		Example: "  tallywheel log prove 4711 --dir ./data > record.tlog-proof\n  tallywheel prove --check record.tlog-proof --key key.ed25519.pub",
		Args:    exactly(1, "the sequence of a record"),
		RunE: func(c *cobra.Command, args []string) error {
			seq, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil {
				return fmt.Errorf("%w: %q: want the sequence of a record, as `log cat` shows it", errUsage, args[0])
			}
			log, err := archive.Open(v.dir)
			if err != nil {
				return err
			}
			dir, err := archive.Folder(v.dir)
			if err != nil {
				return err
			}
			p, err := seglog.ProveEntry(dir, seq, log.Streams.Named)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(p.Marshal())
			return err
		},
	}
}

func newProve() *cobra.Command {
	var file string
	var keys []string
	v := &logView{}
	c := &cobra.Command{
		Use: "prove --check FILE", Short: "check a proof that `log prove` has printed, without the log",
		Long: "prove checks that a record was in a log, as it is in FILE: that it and its source are in their segment, the segment in the log of\n" +
			"the checkpoint, and with --key that the key signed that. Without --key whoever wrote the file can have made it all up: then\n" +
			"compare the checkpoint with one that you have from elsewhere. FILE is - for standard input.\n\n" +
			"Exit code: 0 if it is proven, 1 if not, 2 for wrong use.",
		Args: exactly(0, "no argument, and the proof by --check FILE"),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return fmt.Errorf("%w: prove: which proof? use --check FILE; `log prove SEQ` makes one", errUsage)
			}
			by, err := readKeys(keys)
			if err != nil {
				return err
			}
			text, err := readProof(c.InOrStdin(), file)
			if err != nil {
				return err
			}
			p, err := proof.Parse(text)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			at, key, err := p.Check(by...)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			return v.proven(c.OutOrStdout(), p, at, key)
		},
	}
	c.Flags().StringVar(&file, "check", "", "file of the proof")
	c.Flags().StringArrayVar(&keys, "key", nil, "one of these must have signed its checkpoint: "+keyUsage)
	c.Flags().BoolVar(&v.asJSON, "json", false, "answer as JSON")
	v.showFlags(c)
	return c
}

func readProof(in io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(in, proof.MaxProof+1))
	}
	return sys.ReadOrdinary(file, proof.MaxProof)
}

// proven shows what a proof has proven.
func (v *logView) proven(w io.Writer, p proof.Proof, at proof.Checkpoint, key string) error {
	rec, ok := seglog.RecordOf(p.Entry)
	if !ok {
		return fmt.Errorf("it is proven, and of a kind that this program does not know (%d)", p.Entry.Kind)
	}
	s := p.Stream
	r := archive.Describe(archive.Stream{Number: s.Number, Source: s.Source, Frame: s.Frame, Quarantine: s.Quarantine},
		rec)
	if v.asJSON {
		return json.NewEncoder(w).Encode(map[string]any{
			"record": r, "note": rec.Kind != seglog.KindRecord, "log": hex.EncodeToString(p.Head.Log[:]),
			"first": p.Head.First, "last": p.Head.Last,
			"leaf": p.Leaf, "checkpoint": at.Origin, "size": at.Size, "signed_by": key,
		})
	}
	if err := v.line(w)(r); err != nil {
		return err
	}
	signed := "signed by " + key
	if key == "" {
		signed = "and no signature was checked: name the key by --key, or compare the checkpoint with one from elsewhere"
	}
	_, err := fmt.Fprintf(w,
		"proven: it is on page %d of %d in the segment of records %d to %d of log %x,\nwhich is leaf %d of %d of checkpoint %q, %s\n",
		p.Index, p.Head.Pages, p.Head.First, p.Head.Last, p.Head.Log, p.Leaf, at.Size, at.Origin, signed)
	return err
}

func newKeygen() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "keygen FILE", Short: "make a key that signs the checkpoints of one log (log.sign)",
		Long: "keygen writes a private key to FILE, which its owner alone can read, and the public key to FILE.pub, and prints that. Give the\n" +
			"public key to whoever is to check proofs. Each log needs a key of its own: its name is the origin of the checkpoints.",
		Example: "  tallywheel log keygen --name plant-7.example.org/line-a /etc/tallywheel/key.ed25519",
		Args:    exactly(1, "the file of the key"),
		RunE: func(c *cobra.Command, args []string) error {
			if name == "" {
				b := make([]byte, 8)
				rand.Read(b) // it never fails
				name = "tallywheel/" + hex.EncodeToString(b)
			}
			private, public, err := proof.NewKey(name)
			if err != nil {
				return fmt.Errorf("%w: --name: %w", errUsage, err)
			}
			if err := writeNew(args[0], private+"\n", 0o600); err != nil {
				return err
			}
			if err := writeNew(args[0]+".pub", public+"\n", 0o644); err != nil {
				return errors.Join(err, os.Remove(args[0]))
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), public)
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "",
		"name of the key, best a URL without scheme that nobody else uses (default: a random one)")
	return c
}

// writeNew writes a file that must not be there.
func writeNew(path, text string, perm fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: name another file, or move it away", path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
