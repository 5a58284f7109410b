package spool

// A spool without room takes no mark that its consumer would come to meanwhile, and the producer
// may end before there is room again. So that it does not read is noted beside the marks, for its
// successor, which writes the mark.

// Block notes that nothing is read from a time on, ns since 1970, for a cause of [Unattended]. It
// may be called again, with another cause.
func (p *Producer) Block(since int64, why uint32) {
	if p.since.Load() != uint64(since) {
		p.Unblock()
		p.blockedAt.Store(p.Position())
	}
	p.why.Store(uint64(why))
	p.step()
	p.since.Store(uint64(since))
	p.step()
}

// Unblock takes that back: it is over, and written down.
func (p *Producer) Unblock() {
	p.since.Store(0)
	p.step()
}

// Blocked is what the producer before has noted by Block and neither written down nor taken back.
// ok is false where there is nothing.
func (p *Producer) Blocked() (since int64, why uint32, ok bool) {
	since, why = int64(p.since.Load()), uint32(p.why.Load())
	if since == 0 {
		return 0, 0, false
	}
	at := p.blockedAt.Load()
	for i := p.published; i > 0 && p.published-i < p.spool.slots; i-- {
		m := markOf(p.spool.mark(i - 1))
		switch {
		case m.Kind == Unattended && m.Time == since: // it was killed before it took the note back
			return 0, 0, false
		case m.read(): // … or right behind the first read, or is of a version that knows no notes
			return since, why, m.At == at || m.At-uint64(m.A) == at
		}
	}
	return since, why, p.Position() == at
}
