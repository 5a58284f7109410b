// Command small is a small server of package net/http, which says how large its own program is.
package main

import (
	"net/http"
	"os"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

func main() { contestant.Main(run) }

func run(t *contestant.Turn) error {
	if addr := t.Text("addr"); addr != "" { // never here; but what it needs is in the program
		return http.ListenAndServe(addr, nil)
	}
	path, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := t.Ready(); err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	return t.Result(took, 1, contestant.Value{Metric: "binary_bytes", V: float64(st.Size())})
}
