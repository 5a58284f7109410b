package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestPictureOfTheDemo takes the README's picture: TALLYWHEEL_PICTURES=docs go test ./e2e -run
// Picture.
func TestPictureOfTheDemo(t *testing.T) {
	if os.Getenv("TALLYWHEEL_PICTURES") == "" {
		t.Skip("SKIPPED: no picture wanted; TALLYWHEEL_PICTURES names a folder for it")
	}
	b := startBrowser(t)
	p := testenv.Start(t, testenv.Binary(t), "demo", "--for", "100s", "--ports", "4", "--seed", "7")
	var url string
	testenv.Until(t, 20*time.Second, "the demo serves", func() bool {
		if m := demoURL.FindStringSubmatch(p.Err.String()); m != nil {
			url = m[1]
		}
		return url != ""
	})
	b.view(1440, 1290, "light")
	b.open(url)
	testenv.Until(t, 95*time.Second, "the charts have a minute and a half", func() bool {
		var n int
		b.eval(`return Number(document.getElementById("charts").dataset.samples ?? 0)`, &n)
		return n >= 85
	})
	b.picture("page.png")
}
