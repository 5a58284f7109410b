package api

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// What is not there, and what is asked for by another method, is an error in JSON.
func TestErrorsOfPathsAndMethodsAreJSON(t *testing.T) {
	g := start(t, nil)
	defer stop(t, g)
	s := serve(t, g)
	defer s.Close()
	for _, c := range []struct {
		method, path string
		code         int
		allow        string
	}{
		{http.MethodGet, "api/v1/nope", http.StatusNotFound, ""},
		{http.MethodPost, "api/v1/nope", http.StatusNotFound, ""},
		{http.MethodGet, "api/v2/sheet", http.StatusNotFound, ""},
		{http.MethodGet, "api/", http.StatusNotFound, ""},
		{http.MethodGet, "api", http.StatusNotFound, ""},
		{http.MethodGet, "nothing", http.StatusNotFound, ""},
		{http.MethodGet, "app.js/more", http.StatusNotFound, ""},
		{http.MethodGet, "%e9", http.StatusNotFound, ""},
		{http.MethodGet, "api/v1/records?from_seq=1&cursor=1", http.StatusBadRequest, ""},
		{http.MethodGet, "api/v1/stream?from_seq=1&cursor=1", http.StatusBadRequest, ""},
		{http.MethodPost, "api/v1/sheet", http.StatusMethodNotAllowed, "GET, HEAD"},
		{http.MethodDelete, "api/v1/records?source=a", http.StatusMethodNotAllowed, "GET, HEAD"},
		{http.MethodOptions, "api/v1/stream", http.StatusMethodNotAllowed, "GET, HEAD"},
		{http.MethodGet, "api/v1/ack", http.StatusMethodNotAllowed, "POST"},
		{http.MethodPost, "healthz", http.StatusMethodNotAllowed, "GET, HEAD"},
		{http.MethodPut, "metrics", http.StatusMethodNotAllowed, "GET, HEAD"},
		{http.MethodPost, "app.js", http.StatusMethodNotAllowed, "GET, HEAD"},
	} {
		req, err := http.NewRequest(c.method, s.URL()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		var said struct{ Error string }
		if err != nil || resp.StatusCode != c.code || resp.Header.Get("Allow") != c.allow ||
			json.Unmarshal(b, &said) != nil || said.Error == "" ||
			!strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s %s: %d, Allow %q, %s, %v; want %d, %q, and an error in JSON",
				c.method, c.path, resp.StatusCode, resp.Header.Get("Allow"), b, err, c.code, c.allow)
		}
	}
}

// A parameter that nothing under /api knows is refused there: a misspelt one must not be passed
// over in silence. What probes and scrapers ask for takes whatever they add.
func TestUnknownParameters(t *testing.T) {
	g := start(t, nil)
	defer stop(t, g)
	s := serve(t, g)
	defer s.Close()
	want := map[string]int{"healthz": http.StatusOK, "metrics": http.StatusOK, "": http.StatusOK}
	for _, name := range []string{"sheet", "ports", "status", "losses", "starts", "records", "stream", "events"} {
		want["api/v1/"+name] = http.StatusBadRequest
	}
	for path, code := range want {
		if got, body := get(t, s.URL()+path+"?collect[]=tcp&_=1", nil); got != code {
			t.Errorf("/%s: %d, %.200s; want %d", path, got, body, code)
		}
	}
}
