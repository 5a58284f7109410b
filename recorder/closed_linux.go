package recorder

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/ledger"
)

// What the log was given of a source is in the books of its spool. Where the spool was given back,
// as that of a peer that has made room, or of a source that has left, it is in the sheets alone,
// and somebody may take those away, with the folder. So the shelf has how much that is, too, for
// each source: a few numbers, however many peers there were.
//
// What the shelf says comes behind the sheet, or the part of the history, that has the same, and
// before the spool is given back. Behind a kill between the two the spool is there, and named.

// closedBooks is what the shelf says, by source.
type closedBooks struct {
	mu sync.Mutex // held while the keeper is told
	of map[string]isolate.Closed
}

// rootOf is the source of a peer, or the source itself.
func rootOf(id string) string {
	root, _, _ := strings.Cut(id, "/")
	return root
}

// hasAbsorbed tells the shelf that a source has the books of peers among its own, of all that may
// be on the shelf.
func (i *isolation) hasAbsorbed(source *lane, peers ...*lane) {
	own := source.sheet()
	books := make([]uint64, len(peers))
	for n, l := range peers {
		books[n] = l.number
	}
	i.closed.change(i, own.ID, func(c *isolate.Closed) {
		if c.Open == nil {
			c.Open = map[uint64]uint64{}
		}
		c.Open[own.Book], c.Books = own.Frames.Stored, books
	})
}

// hasClosed tells the shelf of accounts that are a part of the start now. What of it the shelf has
// it passes over. dismissed is the books of peers that are in them, and whose spools may be there.
func (i *isolation) hasClosed(part *archive.StartSheet, dismissed ...uint64) {
	if i == nil || i.start.Since == 0 { // there is no shelf, or the start is not gone on with
		return
	}
	accounts := map[string][]ledger.Port{}
	for _, p := range part.Sheet.Ports {
		accounts[rootOf(p.ID)] = append(accounts[rootOf(p.ID)], p)
	}
	for source, closed := range accounts {
		i.closed.change(i, source, func(c *isolate.Closed) {
			if c.Parts >= part.Parts {
				return
			}
			c.Parts, c.Books = part.Parts, slices.Clone(dismissed)
			for _, p := range closed {
				c.Frames += p.Frames.Stored
				c.Books = append(c.Books, p.Book)
				delete(c.Open, p.Book)
			}
		})
	}
}

// change changes what the shelf says of a source.
func (b *closedBooks) change(i *isolation, source string, by func(*isolate.Closed)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.of[source]
	if c.Since != i.start.Since {
		c = isolate.Closed{Since: i.start.Since}
	}
	by(&c)
	if b.of == nil {
		b.of = map[string]isolate.Closed{}
	}
	b.of[source] = c
	_ = i.link.Put(isolate.ClosedOf(source), c) // an error: the keeper has ended
}

// take takes in what the shelf says of a source.
func (b *closedBooks) take(source string, e isolate.Entry) error {
	var c isolate.Closed
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return err
	}
	if b.of == nil {
		b.of = map[string]isolate.Closed{}
	}
	b.of[source] = c
	return nil
}

func (b *closedBooks) isEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.of) == 0
}

// forget takes all that the shelf says off it: another start begins.
func (b *closedBooks) forget(i *isolation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for source := range b.of {
		_ = i.link.Drop(isolate.ClosedOf(source)) // as in change
	}
	b.of = nil
}

// has reports whether the shelf says of a source what the books of that number have.
func (b *closedBooks) has(source string, book uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.of[rootOf(source)].Books, book)
}

// accounts adds what the shelf says of a start to the accounts of its spools. isThere: the log has
// it, else it is dropped.
func (b *closedBooks) accounts(since int64, accounts []ledger.Port, isThere bool, now int64) []ledger.Port {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, source := range slices.Sorted(maps.Keys(b.of)) {
		c := b.of[source]
		n := c.Frames
		for _, stored := range c.Open {
			n += stored
		}
		if n == 0 || c.Since != since {
			continue
		}
		p := ledger.Port{
			ID: source, State: ledger.StateStopped, Heard: true, Proof: ledger.ProofNumbers,
			Unread: map[string]uint64{}, Outages: []ledger.Outage{},
		}
		p.Frames.OK, p.Frames.Unique, p.Frames.Dropped = n, n, map[string]uint64{}
		if isThere {
			p.Frames.Stored, p.Frames.Durable = n, n
		} else {
			p.Frames.Dropped[causeGone], p.LastLoss = n, ledger.Time(now)
		}
		if at := slices.IndexFunc(accounts, func(o ledger.Port) bool { return o.ID == source }); at >= 0 {
			accounts[at] = accounts[at].Join(&p)
			continue
		}
		accounts = append(accounts, p)
	}
	return accounts
}
