package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // so that --tz works on a machine without a database of time zones

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/archive"
)

// window is the time that the records asked for are of, as the command line says it.
type window struct {
	since, until string
	zone         *time.Location // nil: not given
}

func (w *window) flags(c *cobra.Command, ends bool) {
	const how = ": RFC 3339, a time of --tz as 2026-11-20T10:00, or so long ago, as 10m or 2d"
	c.Flags().StringVar(&w.since, "since", "", "only records made at this time or after it"+how)
	if ends {
		c.Flags().StringVar(&w.until, "until", "", "only records made at this time or before it")
	}
	c.Flags().Var(&parsed{kind: "zone", read: func(s string) (err error) {
		if w.zone, err = time.LoadLocation(s); err != nil || s == "" {
			return fmt.Errorf("want a time zone, as Europe/Berlin, UTC or Local")
		}
		return nil
	}}, "tz", "time zone of the times that are shown, and of --since and --until without one (default UTC)")
}

// location is the zone in which times are shown.
func (w *window) location() *time.Location { return cmp.Or(w.zone, time.UTC) }

// moments are the two ends in ns since 1970; 0: not given.
func (w *window) moments(now time.Time) (since, until int64, err error) {
	for _, end := range []struct {
		name, text string
		at         *int64
	}{{"since", w.since, &since}, {"until", w.until, &until}} {
		if end.text == "" {
			continue
		}
		if *end.at, err = moment(end.text, w.location(), now); err != nil {
			return 0, 0, fmt.Errorf("%w: --%s: %w", errUsage, end.name, err)
		}
	}
	if until != 0 && since > until {
		return 0, 0, fmt.Errorf("%w: --since is after --until", errUsage)
	}
	return since, until, nil
}

// localLayouts are times without a zone.
var localLayouts = []string{
	"2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04",
	time.DateOnly,
}

// moment reads a time, in ns since 1970.
func moment(text string, zone *time.Location, now time.Time) (int64, error) {
	if at, err := archive.ParseTime(text); err == nil {
		return at, nil
	}
	if ago, ok := span(text); ok {
		return max(1, now.Add(-ago).UnixNano()), nil
	}
	for _, layout := range localLayouts {
		wall, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		at, err := time.ParseInLocation(layout, text, zone)
		if err != nil {
			return 0, err
		}
		if at.Format(layout) != wall.Format(layout) {
			return 0, fmt.Errorf("%q: the clocks of %s never showed that time", text, zone)
		}
		if err := once(at); err != nil {
			return 0, fmt.Errorf("%q: %w", text, err)
		}
		return archive.ParseTime(at.Format(time.RFC3339Nano)) // which bounds it
	}
	return 0,
		fmt.Errorf("%q: want RFC 3339 as 2026-01-02T15:04:05Z, a time of --tz as 2026-01-02T15:04, or so long ago, as 10m or 2d", text)
}

// span reads a length of time, which may be in days.
func span(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// once is an error where the clocks of a zone showed a time twice, since they were set back: then
// only an offset says which is meant.
func once(at time.Time) error {
	const wall = "2006-01-02T15:04:05.999999999"
	for _, step := range []time.Duration{
		-2 * time.Hour, -time.Hour, -30 * time.Minute, 30 * time.Minute, time.Hour,
		2 * time.Hour,
	} {
		if at.Add(step).Format(wall) == at.Format(wall) {
			return fmt.Errorf("the clocks of %s showed that time twice; add the offset, as in %s", at.Location(),
				at.Format(time.RFC3339))
		}
	}
	return nil
}
