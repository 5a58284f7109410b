package board

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

func TestMain(m *testing.M) { testenv.NoLeaks(m) }

// TestInitramfs: each entry begins at a multiple of four, and has its size, its mode and its name
// where newc has them.
func TestInitramfs(t *testing.T) {
	dir := t.TempDir()
	one, path := filepath.Join(dir, "one"), filepath.Join(dir, "initramfs")
	if err := os.WriteFile(one, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteInitramfs(path, map[string]string{"init": one}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	at := strings.Index(text, "init\x00") - 110
	if at < 0 || at%4 != 0 || text[at:at+6] != "070701" || text[at+14:at+22] != "000081ed" ||
		text[at+54:at+62] != "00000005" || text[at+116:at+121] != "hello" || len(text)%4 != 0 ||
		!strings.Contains(text, "TRAILER!!!\x00") {
		t.Errorf("at %d: %q", at, text)
	}
	err = WriteInitramfs(path, map[string]string{"init": filepath.Join(dir, "none")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestRecorded: what comes by a terminal is in the log, line by line, and the books are held to
// that; what is missing is named.
func TestRecorded(t *testing.T) {
	const begin = "[    0.1] a kernel speaks\r\n# {\"board\":1,\"what\":\"first\",\"up_ns\":7}\r\n"
	for said, want := range map[string]string{
		begin + "{\"board\":2,\"what\":\"last\"}\r\n": "",
		begin + "{\"board\":3,\"what\":\"last\"}\r\n": "line 3 came where 2 was due",
	} {
		dir := t.TempDir()
		port, err := serialtest.NewPort(filepath.Join(dir, "port"))
		if err != nil {
			t.Fatal(err)
		}
		g, err := record(t.Context(), dir, port.Link)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (toPort{t.Context(), port}).Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		h, err := g.listen(t.Context())
		if err := errors.Join(err, g.close(), port.Close()); err != nil {
			t.Fatal(err)
		}
		if got := h.whole(); got != want || h.records != 3 || len(h.lines) != 2 || h.lines[0].Up != 7 {
			t.Errorf("%q, want %q: %+v", got, want, h)
		}
		h.port.Frames.Durable--
		if got := h.whole(); want == "" && got != "the log has 3 lines, the books 3, 2 of them durable" {
			t.Errorf("%q of %+v", got, h.port.Frames)
		}
	}
	var failed heard
	for _, text := range []string{"tallywheel: what was wrong", "Kernel panic"} {
		failed.take([]byte(text + "\n"))
	}
	if failed.lastText != "tallywheel: what was wrong" {
		t.Errorf("said last: %q", failed.lastText)
	}
	if got := (&heard{}).whole(); got != "the last line is missing" {
		t.Errorf("%q", got)
	}
	h := heard{lines: []line{{Board: 1, What: last}}, port: ledger.Port{Unbalanced: []string{"1 = 2"}}}
	if got := h.whole(); got != "the books do not balance: [1 = 2]" {
		t.Errorf("%q", got)
	}
}

// TestVerdicts: one boot that differs, or has lost a line, is counted, and named.
func TestVerdicts(t *testing.T) {
	whole := heard{balanced: true, lines: []line{{Board: 1, What: first, Up: 2e9}, {Board: 2, What: last}}}
	differs := whole
	differs.sum[0] = 1
	all := []boots{{kernel: "armmp", same: []heard{whole, whole, differs}, seeded: []heard{differs, {balanced: true}}}}
	alikeOnes, _ := starts(all).Claims[0].Judge(lab.View{})
	recorded, _ := cyclic(all).Claims[1].Judge(lab.View{})
	if alikeOnes.Verdict != lab.NotReproduced || alikeOnes.Here != "2 of 3 boots of armmp" ||
		alikeOnes.Why != "Boot 3: it differs from the first." {
		t.Errorf("%+v", alikeOnes)
	}
	if recorded.Verdict != lab.NotReproduced || recorded.Here != "4 of 5 on armmp" ||
		recorded.Why != "Boot 5: the last line is missing." {
		t.Errorf("%+v", recorded)
	}
	one := all[0].starts(all[0].same, "one")
	if one.Said != "mean 2.000000 s, standard deviation 0.000000, 95 % within 2.000000" || len(one.Rounds) != 3 {
		t.Errorf("%+v", one)
	}
}
