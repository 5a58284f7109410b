package main

import "testing"

func TestBytesAsText(t *testing.T) {
	for _, c := range []struct{ data, auto, text string }{
		{"$GPGGA,1*47\r\n", `"$GPGGA,1*47\r\n"`, `"$GPGGA,1*47\r\n"`},
		{"Grüße, \"x\"\t", `"Grüße, \"x\"\t"`, `"Grüße, \"x\"\t"`},
		{"a\x00b", "610062", `"a\x00b"`},
		{"\xe9", "e9", `"\xe9"`},
		{"\x1b[31m", "1b5b33316d", `"\x1b[31m"`}, // a terminal must not obey what a device says
		{"", "", `""`},
	} {
		if got := asAuto.show([]byte(c.data)); got != c.auto {
			t.Errorf("%q is shown as %s, want %s", c.data, got, c.auto)
		}
		if got := asText.show([]byte(c.data)); got != c.text {
			t.Errorf("%q as text is %s, want %s", c.data, got, c.text)
		}
	}
}
