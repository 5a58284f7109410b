package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
)

// Where log.dir names another folder than the recorder's, for ack was started elsewhere, the API is
// asked, if the recorder there is the one of the file. Where none answers the folder decides.
func TestAckFromAnotherFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	acked := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/ports" {
			fmt.Fprint(w, `{"ports": [{"id": "line-1"}]}`)
			return
		}
		acked++
		fmt.Fprint(w, `{"at": "2026-11-22T10:00:00Z", "note": "known"}`)
	}))
	defer api.Close()
	nobody := httptest.NewServer(http.NotFoundHandler())
	nobody.Close()
	here, elsewhere := "data", "gone"
	if err := os.Mkdir(here, 0o700); err != nil {
		t.Fatal(err)
	}
	absolute := t.TempDir()
	for _, c := range []struct {
		dir, source, api string
		asked, kept      bool
		err              string
	}{
		{elsewhere, "line-1", api.URL, true, false, ""},
		{here, "line-1", api.URL, true, false, ""}, // a folder of that name is here, too
		{elsewhere, "other", api.URL, false, false, "has none of the sources"},
		{here, "other", api.URL, false, true, ""},
		{elsewhere, "line-1", nobody.URL, false, false, "relative to the folder in which the recorder was started"},
		{here, "line-1", nobody.URL, false, true, ""},
		{absolute, "line-1", api.URL, false, true, ""},
	} {
		os.Remove(c.dir + "/" + archive.AckFile)
		acked = 0
		cfg := config.Config{Log: config.Log{Dir: c.dir}, Sources: []config.Source{{ID: c.source}}}
		cfg.API.Listen = strings.TrimPrefix(c.api, "http://")
		_, err := acknowledge(t.Context(), cfg, "known")
		_, statErr := os.Stat(c.dir + "/" + archive.AckFile)
		if (acked == 1) != c.asked || (statErr == nil) != c.kept || (err != nil) != (c.err != "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: asked %d times, kept %v, %v", c, acked, statErr == nil, err)
		}
	}
}
