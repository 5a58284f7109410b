package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/tallywheel/tallywheel/recorder"
)

// maxAck is the longest request to acknowledge, in bytes.
const maxAck = 8 << 10

// errMore says that something stands behind the JSON of a request.
var errMore = errors.New("something stands behind it")

// ack makes the verdict count from now on. It asks for JSON, which no form of another site can
// send.
func (s *Server) ack(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, `want Content-Type: application/json, and {"note": "…"}`)
		return
	}
	var ask struct {
		Note string `json:"note"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAck))
	d.DisallowUnknownFields()
	err := d.Decode(&ask)
	if err == nil {
		if _, err = d.Token(); err == nil { // nothing may follow
			err = errMore
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	var other *json.UnmarshalTypeError // whose words are of Go's types
	switch {
	case errors.As(err, &other) && other.Field != "":
		err = errors.New("the note is no text")
	case errors.As(err, &other):
		err = errors.New("this is no object")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, fmt.Sprintf(`want {"note": "…"} and nothing else, in %d bytes: %v`, maxAck, err))
		return
	}
	a, err := s.rec.Ack(ask.Note)
	switch {
	case errors.Is(err, recorder.ErrNote):
		fail(w, http.StatusBadRequest, err.Error())
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
	default:
		answer(w, a)
	}
}
