// Package claims lists what the articles claim, each claim once, with its number, its chapter and
// the figure that stands there. A claim is a value, so that a misspelt one does not compile; an
// experiment gives it a judge. A test holds that each has exactly one.
package claims

import (
	"slices"

	"github.com/tallywheel/tallywheel/lab"
)

var all []lab.Published

// All lists the claims, by document and number.
func All() []lab.Published { return slices.Clone(all) }

// of makes the claims of a document, and keeps them in the list.
func of(d lab.Document) func(number int, chapter, text, figure string) lab.Published {
	return func(number int, chapter, text, figure string) lab.Published {
		p := d.Claims(number, chapter, text, figure)
		all = append(all, p)
		return p
	}
}
