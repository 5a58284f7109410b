package config

// nearest returns the name with the fewest changes from s, "" if none is near.
func nearest(s string, names []string) string {
	best, fewest := "", 1+len(s)/3
	for _, n := range names {
		if d := distance(s, n); d <= fewest && (best == "" || d < fewest) {
			best, fewest = n, d
		}
	}
	return best
}

// distance is the number of changes of single characters, swaps of neighbours included, that make b
// out of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
