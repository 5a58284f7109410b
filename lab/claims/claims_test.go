package claims

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// TestNumbersHaveNoHoles: each document has the claims from 1 to its last: one that is taken out of
// the list, or forgotten between two, is missed.
func TestNumbersHaveNoHoles(t *testing.T) {
	count, ids, documents := map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, p := range All() {
		s := p.Source
		count[s.Number]++
		documents[s.Number] = true
		if ids[s.ID] {
			t.Errorf("%s is there twice: %s", s.ID, p.Text)
		}
		ids[s.ID] = true
		if s.Chapter == "" || p.Text == "" || !strings.HasPrefix(s.ID, s.Number+"-") {
			t.Errorf("%s: chapter %q, %q", s.ID, s.Chapter, p.Text)
		}
	}
	for number, n := range count {
		for i := range n {
			if id := fmt.Sprintf("%s-%02d", number, i+1); !ids[id] {
				t.Errorf("document %s has %d claims, and %s is not among them", number, n, id)
			}
		}
	}
	for _, d := range []lab.Document{
		lab.SerialArticle, lab.FilesArticle, lab.RealTimeArticle, lab.ProcessesArticle, lab.NetworkArticle,
	} {
		if !documents[d.Number] {
			t.Errorf("no claim of document %s", d.Number)
		}
	}
}
