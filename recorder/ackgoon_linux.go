package recorder

import "github.com/tallywheel/tallywheel/ledger"

// goOnAck ends in a lane that goes on what the recorder before this one had begun, which was killed
// as it was given a word: the word holds in all books once it is on disk, or in none.
func (r *Recorder) goOnAck(l *lane) {
	r.acks.mu.Lock()
	word := r.acks.last
	r.acks.mu.Unlock()
	var given *ledger.Noted
	if word != nil && word.Sheet != nil && int64(word.Sheet.Since) == r.since {
		if of, ok := word.Books[l.number]; ok {
			given = &of
		}
	}
	l.goOnAck(given)
}

// goOnAck ends an acknowledgement, as the books have it: see there.
func (l *lane) goOnAck(given *ledger.Noted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.GoOnAck(given)
	l.touched = true
}
