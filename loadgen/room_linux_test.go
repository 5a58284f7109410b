package loadgen

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRoomComes: memory that the kernel is freeing is waited for, and no longer than more comes.
func TestRoomComes(t *testing.T) {
	for name, c := range map[string]struct {
		seen  []int64 // at each look; the last one stays
		want  int64
		looks int
	}{
		"there":         {[]int64{100}, 100, 1},
		"not known":     {[]int64{0}, 0, 1},
		"comes":         {[]int64{10, 40, 40, 90, 100}, 100, 5},
		"comes in part": {[]int64{10, 40}, 40, 2 + freeing},
		"goes":          {[]int64{50, 40}, 50, 1 + freeing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				got, err := roomComes(t.Context(), 100, func() int64 {
					looks++
					return c.seen[min(looks, len(c.seen))-1]
				})
				if got != c.want || looks != c.looks || err != nil {
					t.Errorf("%d by %d looks, %v; want %d by %d", got, looks, err, c.want, c.looks)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		grows := int64(0)
		_, err := roomComes(ctx, 1<<40, func() int64 { grows++; return grows })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it waits for what grows for ever: %v", err)
		}
	})
}
