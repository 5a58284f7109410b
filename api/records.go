package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/archive"
)

// Bounds of a page. What a page cannot hold, or did not find in that time, the next one has: its
// cursor says where that begins.
const (
	maxPage     = 10_000 // records
	defaultPage = 100
	pageBytes   = 4 << 20 // of data, before base64
	pageSearch  = 2 * time.Second
)

// asked is what a request for records asks for.
type asked struct {
	query archive.Query // its From and Before are not set
	limit int
	after *archive.Mark // begin behind it; nil: no place was named
	named string        // … as the client wrote it
}

// Parameters of requests for records.
var (
	streamParams = []string{"source", "from_seq", "cursor", "from_time", "to_time", "quarantine", "contains"}
	pageParams   = append(slices.Clone(streamParams), "limit", "order")
)

// params reads the parameters of a request, which may have those that are known.
func params(r *http.Request, known []string) (url.Values, error) {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read: %w", err)
	}
	for name, values := range v {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("parameter %q is not known here; there are %s", name, strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("parameter %q is there twice", name)
		}
	}
	return v, nil
}

// knows is an error unless a source is recorded, or was.
func (s *Server) knows(source string) error {
	known := s.rec.Archive().Streams.Sources()
	for _, p := range s.rec.Ports() {
		known = append(known, p.ID)
	}
	return archive.KnownSource(source, known)
}

// ask reads the parameters of a request for records, which may have those that are known.
func (s *Server) ask(r *http.Request, known []string) (a asked, err error) {
	v, err := params(r, known)
	if err != nil {
		return a, err
	}
	a.query.Source, a.limit = v.Get("source"), defaultPage
	if err := s.knows(a.query.Source); err != nil {
		return a, err
	}
	if t := v.Get("quarantine"); t != "" {
		if a.query.Quarantine, err = strconv.ParseBool(t); err != nil {
			return a, fmt.Errorf("quarantine %q: want true or false", t)
		}
	}
	if t := v.Get("limit"); t != "" {
		if a.limit, err = strconv.Atoi(t); err != nil || a.limit < 1 || a.limit > maxPage {
			return a, fmt.Errorf("limit %q: want 1 to %d", t, maxPage)
		}
	}
	switch t := v.Get("order"); t {
	case "", "oldest":
	case "newest":
		a.query.Back = true
	default:
		return a, fmt.Errorf("order %q: want oldest, or newest", t)
	}
	if a.query.Contains, err = archive.ParseContains(v.Get("contains")); err != nil {
		return a, fmt.Errorf("contains: %w", err)
	}
	if a.query.Since, err = timeOf(v, "from_time"); err != nil {
		return a, err
	}
	if a.query.Until, err = timeOf(v, "to_time"); err != nil {
		return a, err
	}
	if a.query.Until != 0 && a.query.Since > a.query.Until {
		return a, errors.New("from_time is after to_time")
	}
	a.after, a.named, err = place(v, a.query.Back)
	return a, err
}

// place is where to begin: at from_seq, or behind the cursor of a page, which may be a number to
// begin at, too; 0 is the oldest one, whichever that is. named is its text. back: towards the
// oldest.
func place(v url.Values, back bool) (after *archive.Mark, named string, err error) {
	if v.Get("cursor") != "" && v.Get("from_seq") != "" {
		return nil, "", errors.New("from_seq and cursor both say where to begin: want one of them")
	}
	for _, name := range []string{"cursor", "from_seq"} {
		t := v.Get(name)
		if t == "" {
			continue
		}
		m, err := archive.ParseMark(t)
		if number := m.Log == [16]byte{}; err != nil || name == "from_seq" && !number {
			return nil, "", fmt.Errorf("%s %q: want %s", name, t, map[string]string{
				"cursor": "that of a page, or the number of a record", "from_seq": "the number of a record",
			}[name])
		} else if number && back {
			m.Seq++ // it names the first one to come
		} else if number && m.Seq > 0 {
			m.Seq--
		}
		return &m, t, nil
	}
	return nil, "", nil
}

// timeOf reads a time, in ns since 1970; 0: it is not there.
func timeOf(v url.Values, name string) (int64, error) {
	t := v.Get(name)
	if t == "" {
		return 0, nil
	}
	at, err := archive.ParseTime(t)
	if err != nil {
		return 0, fmt.Errorf("%s %w", name, err)
	}
	return at, nil
}

// pageEnd is what stands behind the records of a page.
type pageEnd struct {
	Log    string `json:"log"`    // identity of the log
	Cursor string `json:"cursor"` // what follows is asked for with it
	End    bool   `json:"end"`    // the log had no more
	Gone   uint64 `json:"gone"`   // records asked for that are not in the log any more
}

// noPlace is the answer to a request for what follows a mark that does not hold.
type noPlace struct {
	Error  string `json:"error"`
	Reason string `json:"reason"`
	reset
}

// reset says where to go on in which log.
type reset struct {
	Log    string `json:"log"`    // identity of the log
	Cursor string `json:"cursor"` // goes on there
	From   uint64 `json:"from"`   // which is before this record
	Gone   uint64 `json:"gone"`   // records that are not in the log any more
}

func resetTo(m archive.Mark, e *archive.MarkError) reset {
	return reset{Log: hex.EncodeToString(m.Log[:]), Cursor: m.String(), From: e.From, Gone: e.Gone}
}

// begin settles where a request begins. no says that the place that it named does not hold: then it
// begins where nothing is passed over that may be unknown to the client.
func begin(in *archive.Archive, a *asked) (no *archive.MarkError, err error) {
	if a.after == nil {
		return nil, nil
	}
	if a.query.Back {
		if a.query.Before, err = in.ResumeBack(*a.after); errors.As(err, &no) {
			return no, nil
		}
		return nil, err
	}
	a.query.From, err = in.Resume(*a.after)
	if !errors.As(err, &no) {
		return nil, err
	}
	a.query.From = no.From
	// the oldest one, whichever that is
	if n, notNumber := strconv.ParseUint(a.named, 10, 63); n == 0 && notNumber == nil {
		no = nil
	} else if no.Reason == archive.Removed && !in.ReachesBack(a.query.Since) { // what is gone was not asked for
		a.query.From, no = 0, nil
	}
	return no, nil
}

// records answers with a page, which is written record by record and never in memory as a whole.
func (s *Server) records(w http.ResponseWriter, r *http.Request) {
	a, err := s.ask(r, pageParams)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageWait)
	defer cancel()
	if !s.seats.pages.enter(ctx) {
		busy(w, "too many clients ask for records at the same time")
		return
	}
	defer s.seats.pages.leave()
	in := s.rec.Archive()
	no, err := begin(in, &a)
	var gone uint64
	switch {
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
		return
	case no != nil && no.Reason == archive.Removed:
		gone = no.Gone
	case no != nil:
		refuseMark(w, in, no, a.query.Back)
		return
	}
	page := pageWriter{w: patiently(w)}
	p, err := in.Page(a.query, archive.Bounds{Records: a.limit, Bytes: pageBytes, Search: pageSearch}, page.record)
	if err == nil && p.Last.Time == 0 {
		p.Last, err = in.Mark(p.Last.Seq)
	}
	if err != nil && !page.begun {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	// An error behind some records ends the page; whoever asks for what follows is told.
	page.end(pageEnd{Log: hex.EncodeToString(p.Last.Log[:]), Cursor: p.Last.String(), End: p.End, Gone: gone + p.Gone})
}

// refuseMark says that a mark does not hold, and where to go on, towards the oldest with back.
func refuseMark(w http.ResponseWriter, in *archive.Archive, no *archive.MarkError, back bool) {
	beside := no.From - 1
	if back {
		beside = no.From + 1
	}
	to, err := in.Mark(beside)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	head(w)
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(noPlace{no.Error(), no.Reason, resetTo(to, no)}) // the client is gone if this fails
}

// pageWriter writes a page as a JSON object.
type pageWriter struct {
	w     *patient
	begun bool
}

func (p *pageWriter) record(r archive.Record) error {
	between := ","
	if !p.begun {
		p.begin()
		between = ""
	}
	if _, err := io.WriteString(p.w, between); err != nil {
		return err
	}
	return json.NewEncoder(p.w).Encode(r)
}

func (p *pageWriter) begin() {
	p.begun = true
	head(p.w)
	_, _ = io.WriteString(p.w, `{"records":[`) // the client is gone if this fails: the next write tells
}

// end writes what comes behind the records.
func (p *pageWriter) end(e pageEnd) {
	if !p.begun {
		p.begin()
	}
	b, _ := json.Marshal(e) // it has nothing that could fail
	b[0] = ','
	_, _ = p.w.Write(append([]byte("]"), b...))
}
