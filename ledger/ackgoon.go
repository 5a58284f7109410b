package ledger

// Noted is what a book has noted for an [Ack], for whoever goes on with the book.
type Noted struct {
	Counts     *Counts `json:"counts"`
	Generation uint32  `json:"generation"` // tells the notes of a book apart
	Read       uint64  `json:"read"`       // the bytes that it had read by then
}

// GoOnAck ends in a book that was restored what BeginAck had begun before, as EndAck had, or was
// about to. given is what the book had noted for the word that holds; nil: for none. A book of
// before that note comes to it as it goes on.
func (b *Book) GoOnAck(given *Noted) {
	a := &b.ack
	switch {
	case given == nil:
		a.noted = nil
	case a.noted != nil && a.notedBefore == given.Generation:
		b.EndAck(true)
	case a.knownBefore < given.Generation:
		a.noted, a.given = nil, given
		b.KnowCarried()
	default:
		a.noted = nil
	}
}

// knowGiven makes known what GoOnAck was given: the book has come to where that was noted.
func (b *Book) knowGiven() {
	a := &b.ack
	if g := a.given; g != nil {
		a.known, a.knownBefore = g.Counts.copy(), g.Generation
		a.generation, a.given = max(a.generation, g.Generation), nil
	}
}

// knownOf is what of the counts of p is known.
func (b *Book) knownOf(p *Port) *Counts {
	if g := b.ack.given; g != nil {
		known := g.Counts.copy()
		known.lower(p.Counts())
		return known
	}
	if b.ack.known == nil {
		return nil
	}
	b.ack.known.lower(p.Counts())
	return b.ack.known.copy()
}
