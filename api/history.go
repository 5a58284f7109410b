package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
)

// Bounds of the lists of what was.
const (
	maxLosses, defaultLosses = 512, 50
	maxStarts, defaultStarts = 100, 20
)

// most reads the parameter limit.
func most(v url.Values, usual, limit int) (int, error) {
	t := v.Get("limit")
	if t == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(t)
	if err != nil || n < 1 || n > limit {
		return 0, fmt.Errorf("limit %q: want 1 to %d", t, limit)
	}
	return n, nil
}

// losses lists what was lost in this start and in earlier ones, the newest first.
func (s *Server) losses(w http.ResponseWriter, r *http.Request) {
	v, err := params(r, []string{"source", "limit"})
	n := 0
	if err == nil {
		n, err = most(v, defaultLosses, maxLosses)
	}
	if err == nil {
		err = s.knows(v.Get("source"))
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	all, forgotten, err := s.rec.Losses(v.Get("source"))
	more := uint64(max(0, len(all)-n)) + forgotten
	answer(w, struct {
		Losses []archive.Loss `json:"losses"`
		More   uint64         `json:"more"`  // older entries that are not here
		Error  string         `json:"error"` // "", or what of the history could not be read
	}{all[:min(n, len(all))], more, said(err)})
}

// said is an error as a field of an answer; "": there is none.
func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// startEnded is a start of the recorder that has ended, in short.
type startEnded struct {
	Since    ledger.Time   `json:"since"`
	At       ledger.Time   `json:"at"`  // of its last sheet
	End      string        `json:"end"` // why it ended
	Sources  int           `json:"sources"`
	Verdict  string        `json:"verdict"`
	Level    ledger.Level  `json:"level"`
	LostWire ledger.Amount `json:"lost_wire"`
	LostHere ledger.Amount `json:"lost_here"`
	Damaged  ledger.Amount `json:"damaged"`
	LastLoss ledger.Time   `json:"last_loss"`
	OtherLog bool          `json:"other_log"` // it was on another log than the one of now
}

// starts lists earlier starts, the newest first.
func (s *Server) starts(w http.ResponseWriter, r *http.Request) {
	v, err := params(r, []string{"limit"})
	n := 0
	if err == nil {
		n, err = most(v, defaultStarts, maxStarts)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageWait)
	defer cancel()
	if !s.seats.pages.enter(ctx) { // it reads the disk as they do
		busy(w, "too many clients ask for records at the same time")
		return
	}
	defer s.seats.pages.leave()
	sheets, more, err := archive.LastStarts(s.rec.Config().Log.Dir, n)
	if err != nil && len(sheets) == 0 {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	all, log := []startEnded{}, archive.LogOf(s.rec.Config().Log.Dir)
	for _, e := range sheets {
		v := e.Sheet.Whole().Judge() // as a whole: what was acknowledged since is in its amounts
		all = append(all, startEnded{
			e.Sheet.Since, e.Sheet.At, e.End, len(e.Sheet.Ports), v.Text, v.Level, v.LostWire, v.LostHere, v.Damaged,
			v.LastLoss,
			e.OnOtherLog(log),
		})
	}
	answer(w, struct {
		Starts []startEnded `json:"starts"`
		More   bool         `json:"more"`  // there are older ones
		Error  string       `json:"error"` // "", or a line that could not be read
	}{all, more, said(err)})
}
