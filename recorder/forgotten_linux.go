package recorder

import (
	"strconv"

	"github.com/tallywheel/tallywheel/internal/isolate"
)

// A peer that makes room goes off the shelf once a sheet has its counts in those of its source, and
// a source that leaves once the history has its books. The keeper may be killed before it has done
// that, and with a store the next recorder finds them again. So sheets name their books until the
// keeper has said that it has forgotten them: whoever finds one then knows that it is counted.

// forgets has the keeper say when it has done what it was told of a book before.
func (i *isolation) forgets(book uint64) {
	_ = i.link.Echo(strconv.FormatUint(book, 10)) // an error: the keeper has ended, and the sheets go on to name it
}

// forgetsAll is forgets for ports that the shelf has had.
func (i *isolation) forgetsAll(ports []*port) {
	for _, p := range ports {
		if p.remote.isTold() {
			i.forgets(p.lane.number)
		}
	}
}

// hearForgotten takes in what the keeper says to forgets.
func (i *isolation) hearForgotten(e isolate.Entry) {
	book, err := strconv.ParseUint(e.Name, 10, 64)
	if err != nil {
		return // nobody has asked for that
	}
	i.told.Lock()
	defer i.told.Unlock()
	i.forgotten = append(i.forgotten, book)
}

// takeForgotten is what the keeper has said since it was called last.
func (i *isolation) takeForgotten() (books []uint64) {
	i.told.Lock()
	defer i.told.Unlock()
	books, i.forgotten = i.forgotten, nil
	return books
}
