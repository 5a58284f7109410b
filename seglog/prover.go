package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/tallywheel/tallywheel/proof"
)

// Proving is how a log proves to others what it holds: see [Log.Prove]. What it calls must not call
// the log, but for [Log.Position].
type Proving struct {
	Named        func(stream uint32) proof.Stream // what a stream's number stands for
	Sign         proof.Signer                     // signs the checkpoints; nil: nobody does
	OnCheckpoint func([]byte)                     // is told of each one; may be nil
	OnTrouble    func(error)                      // is told what keeps the log from proving; may be nil
}

// Prove has the log make a head of each segment that is sealed, and of those that have none, and a
// checkpoint behind each. It reads the segments once more, on a goroutine of its own, until the log
// is closed; recording waits for none of it, but retention does: what it removes has a head, unless
// OnFull takes it, the heads cannot be written, or it went before the call, which Config.Proves
// prevents. It is called once. Under SyncNever only what is known to be durable gets a head, which
// is when the log is opened the next time.
func (l *Log) Prove(by Proving) {
	by.Named = onlyKnown(by.Named)
	p := &prover{log: l, by: by}
	l.shelf.mu.Lock()
	l.shelf.proving = l.cfg.Sync != SyncNever
	l.shelf.mu.Unlock()
	l.done.Add(1)
	go p.run()
}

// Checkpoint is the newest checkpoint of a log that proves what it holds; nil: there is none yet.
func (l *Log) Checkpoint() []byte {
	if c := l.checkpoint.Load(); c != nil {
		return *c
	}
	return nil
}

// prover makes heads and checkpoints. It belongs to one goroutine.
type prover struct {
	log    *Log
	by     Proving
	file   File
	tree   proof.Tree
	salts  map[uint64]uint32 // of the newest head of a segment, by its first sequence
	passed map[uint64]uint32 // likewise, of segments that cannot have one
	was    proof.Checkpoint  // the last one of before: none is made that is against it
	holds  bool              // what it says is so
	told   string            // the last trouble
}

const (
	proveRate  = 64 << 20         // bytes that are read in a second for a head …
	proveLate  = 2                // … unless more segments than this wait for theirs
	provePause = 10 * time.Second // between tries
)

// run makes what is missing, and then what comes.
func (p *prover) run() {
	l := p.log
	defer l.done.Done()
	defer func() {
		if p.file != nil {
			p.file.Close()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-l.sealings:
		case <-timer.C:
		}
		err := p.step()
		l.shelf.mu.Lock()
		l.shelf.proving = err == nil && l.cfg.Sync != SyncNever
		l.shelf.mu.Unlock()
		signal(l.shelf.work)
		switch {
		case errors.Is(err, errStopped):
			return
		case err == nil:
		case errors.Is(err, errSync):
			p.trouble(fmt.Errorf("%w: what the log holds is not proven from here on, until it is opened again", err))
			return
		default:
			p.trouble(err)
			timer.Reset(provePause)
		}
	}
}

func (p *prover) trouble(err error) {
	if p.by.OnTrouble != nil && p.told != err.Error() {
		p.told = err.Error()
		p.by.OnTrouble(err)
	}
}

// step does all that there is to be done now.
func (p *prover) step() error {
	if err := p.log.inPlace(); err != nil {
		return err
	}
	if p.file == nil {
		if err := p.load(); err != nil {
			return err
		}
	}
	for {
		waiting := p.waiting()
		if len(waiting) == 0 {
			return p.checkpoint()
		}
		if err := p.prove(waiting[0], len(waiting)); err != nil {
			return err
		}
		if !p.holds { // as long as there are fewer heads than the last checkpoint counts
			continue
		}
		if err := p.checkpoint(); err != nil {
			return err
		}
	}
}

// load reads the heads that there are, and makes the file fit to be written behind them.
func (p *prover) load() error {
	dir, l := p.log.cfg.FS, p.log
	text, err := readCheckpoint(dir)
	if err != nil {
		return err
	}
	p.tree, p.salts, p.passed, p.was, p.holds = proof.Tree{}, map[uint64]uint32{}, map[uint64]uint32{},
		proof.Checkpoint{}, true
	if text != nil {
		if p.was, _, err = proof.OpenCheckpoint(text); err != nil {
			aside, asideErr := setAside(dir, checkpointFile, damagedSuffix)
			if asideErr != nil {
				return asideErr
			}
			p.trouble(fmt.Errorf("the checkpoint is damaged, and was set aside as %s: what it said cannot be compared (%w)", aside, err))
			p.was = proof.Checkpoint{}
		}
		p.holds = p.was.Size == 0
	}
	foreign, last := false, proof.Head{}
	n, rest, err := eachHead(dir, func(_ int64, h proof.Head) {
		foreign = foreign || h.Log != l.identity
		p.take(h)
		last = h
	})
	if err != nil {
		return err
	}
	if foreign {
		return p.begin()
	}
	f, err := dir.Open(headsFile)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = dir.Create(headsFile); err == nil {
			err = dir.Sync()
		}
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", headsFile, err)
	}
	if err := p.mend(f, n, rest, last); err != nil {
		return errors.Join(err, f.Close())
	}
	p.file = f
	return nil
}

// begin sets the heads of another log aside, with their checkpoint.
func (p *prover) begin() error {
	dir := p.log.cfg.FS
	var names []string
	for _, name := range []string{checkpointFile, headsFile} {
		aside, err := setAside(dir, name, damagedSuffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil {
			names = append(names, aside)
		}
	}
	if err := dir.Sync(); err != nil {
		return err
	}
	p.trouble(fmt.Errorf("the heads beside the log are of another log, and were set aside: %v", names))
	return p.load()
}

// mend cuts what follows the n whole heads of a file, the last of which is written again: a sync
// may have failed before, and then the disk may not have it.
func (p *prover) mend(f File, n, rest int64, last proof.Head) error {
	if rest > proof.HeadBytes { // one that is torn is made again, and nobody need know
		aside, err := copyAside(p.log.cfg.FS, headsFile)
		if err != nil {
			return err
		}
		p.trouble(fmt.Errorf("%s is damaged at %d: the heads from there on are made anew, as far as their segments are there; it was kept as %s",
			headsFile, n*proof.HeadBytes, aside))
	}
	if err := zero(f, n*proof.HeadBytes, n*proof.HeadBytes+rest, nil); err != nil {
		return err
	}
	if n > 0 {
		if err := writeAll(f, last.Encode(n-1), (n-1)*proof.HeadBytes); err != nil {
			return err
		}
	}
	if n == 0 && rest == 0 {
		return nil
	}
	return syncFile(f)
}

// take adds a head that is in the file.
func (p *prover) take(h proof.Head) {
	p.tree.Add(h.Hash())
	p.salts[h.First] = h.Salt
	if p.tree.Size() == p.was.Size {
		p.holds = p.tree.Root() == p.was.Root
	}
}

// waiting lists the sealed segments that need a head and have none, and tells retention of those
// before them.
func (p *prover) waiting() (all []sealedSegment) {
	l := p.log
	durable := uint64(math.MaxUint64)
	if l.cfg.Sync == SyncNever {
		durable = l.Position().Durable
	}
	sealed := l.shelf.sealed()
	proven := uint64(0)
	for _, s := range sealed {
		if has(p.salts, s) || has(p.passed, s) || s.last < s.base || s.last > durable {
			if len(all) == 0 {
				proven = s.last
			}
			continue
		}
		all = append(all, s)
	}
	l.shelf.mu.Lock()
	l.shelf.proven = max(l.shelf.proven, proven)
	l.shelf.mu.Unlock()
	signal(l.shelf.work)
	if len(sealed) > 0 && len(p.salts) > 2*len(sealed)+64 { // those of segments that are gone
		for base := range p.salts {
			if base < sealed[0].base {
				delete(p.salts, base)
			}
		}
	}
	return all
}

func has(salts map[uint64]uint32, s sealedSegment) bool {
	salt, ok := salts[s.base]
	return ok && salt == s.salt
}

// prove makes the head of a segment; so many wait.
func (p *prover) prove(s sealedSegment, waiting int) error {
	made, last, err := s.made, s.last, error(nil)
	if made == nil {
		made, last, err = p.read(s, waiting)
	}
	if err != nil || made == nil {
		return err
	}
	l := p.log
	h := made.Head(proof.Head{Log: l.identity, Salt: s.salt, First: s.base, Last: last}, p.by.Named)
	leaf := p.tree.Size()
	if err := writeSync(p.file, h.Encode(leaf), leaf*proof.HeadBytes); err != nil {
		return fmt.Errorf("write %s: %w", headsFile, err)
	}
	l.shelf.proves(s.base)
	p.take(h)
	return nil
}

// read makes what becomes the head of a segment that was not watched while it was written: of an
// older log, or one that was closed meanwhile. It is nil where there is nothing to be had.
func (p *prover) read(s sealedSegment, waiting int) (*proof.Segment, uint64, error) {
	l := p.log
	rate := float64(proveRate)
	if waiting > proveLate {
		rate = math.MaxInt64
	}
	dir := &paced{FS: l.cfg.FS, log: l, rate: rate, free: time.Now()}
	sum := &Summary{made: &proof.Segment{}}
	err := sum.segment(dir, s.base, l.behind(s.base))
	switch {
	case !l.holds(s.base): // OnFull took it meanwhile
		p.passed[s.base] = s.salt
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("read %s for its head: %w", segmentName(s.base), err)
	case len(sum.Problems) > 0 || sum.read.salt != s.salt:
		p.passed[s.base] = s.salt
		p.trouble(fmt.Errorf("%s is damaged, and gets no head before `log repair`: what it holds cannot be proven",
			segmentName(s.base)))
		return nil, 0, nil
	}
	return sum.made, sum.next - 1, nil
}

// proves has the memory of what makes a segment's head go, for the head is made.
func (s *shelf) proves(base uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.old {
		if s.old[i].base == base {
			s.old[i].made = nil
		}
	}
}

// checkpoint makes the checkpoint of the heads that there are, if it is new.
func (p *prover) checkpoint() error {
	if p.tree.Size() == 0 {
		return nil
	}
	if !p.holds {
		p.trouble(fmt.Errorf("the heads of the log are not those of its checkpoint, of %d heads: some were lost, or changed; no checkpoint is made "+
			"from here on. `log verify` says more; move %s away to begin anew", p.was.Size, checkpointFile))
		return nil
	}
	c := proof.Checkpoint{Origin: proof.Unsigned(p.log.identity), Size: p.tree.Size(), Root: p.tree.Root()}
	if p.by.Sign != nil {
		c.Origin = p.by.Sign.Name()
	}
	text, err := c.Sign(p.by.Sign)
	if err == nil {
		err = writeCheckpoint(p.log.cfg.FS, text)
	}
	if err != nil {
		return err
	}
	if was := p.log.checkpoint.Swap(&text); p.by.OnCheckpoint != nil && (was == nil || string(*was) != string(text)) {
		p.by.OnCheckpoint(text)
	}
	return nil
}
