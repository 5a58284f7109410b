package config

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallywheel/tallywheel/frame/framings"
)

// field is what the tags of a field say:
//
//	yaml     its key in the file
//	about    what it is, for the schema
//	one      the values it may have
//	min, max the numbers, times and sizes it may have
//	form     the form of a text, see forms
//	need     it must be there
//	secret   what is wrong with it is said without it
//	lacks    keys of its type that it does not take; see places
type field struct {
	key, about string
	one        []string
	min, max   string
	form       form
	need       bool
	secret     bool
}

// form is what a text must look like, and the same in words.
type form struct{ pattern, want string }

var forms = map[string]form{
	"":           {},
	"id":         {`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`, "letters, digits, dot, dash and underscore, at most 64"},
	"period":     {`^(off|[1-9][0-9]{0,3}h)$`, "hours, as 24h, or off"},
	"percent":    {`^([1-4]?[0-9]|50)%$`, "0% to 50%"},
	"token-name": {`^[A-Za-z0-9_-]{1,64}$`, "letters, digits, dash and underscore, at most 64"},
	"token":      {`^.{16,}$`, "at least 16 characters"},
	"web":        {`^(https?://[^/?#]+.*)?$`, "a URL, as https://example.org/alarms"},
}

func fieldOf(f reflect.StructField) field {
	t := f.Tag
	out := field{
		key: t.Get("yaml"), about: t.Get("about"), one: strings.Fields(t.Get("one")), min: t.Get("min"),
		max:  t.Get("max"),
		form: forms[t.Get("form")], need: t.Get("need") != "", secret: t.Get("secret") != "",
	}
	if f.Type == reflect.TypeFor[string]() && out.key == "kind" {
		out.one = framings.Names()
	}
	return out
}

// checked reports the fields of a section that have not the values which their tags allow. Texts
// that say nothing are left to Validate.
func checked(section any) (p Problems) {
	v := reflect.ValueOf(section)
	for i := range v.NumField() {
		f := fieldOf(v.Type().Field(i))
		switch value := v.Field(i); value.Kind() {
		case reflect.String:
			if why := f.text(value.String()); why != "" && f.secret {
				p.add(f.key, "%s", why)
			} else if why != "" {
				p.add(f.key, "%q: %s", value.String(), why)
			}
		case reflect.Int, reflect.Int64:
			switch n := value.Int(); {
			case f.max != "" && n > amount(value.Type(), f.max), f.min != "" && n < amount(value.Type(), f.min):
				p.add(f.key, "%v: %s", value.Interface(), f.span())
			}
		}
	}
	return p
}

// span puts the values of a number in words.
func (f field) span() string {
	if f.max == "" {
		return "want at least " + f.min
	}
	return "want " + f.min + " to " + f.max
}

// text says what is wrong with a text.
func (f field) text(s string) string {
	switch {
	case !utf8.ValidString(s):
		return "want text in UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "want no control characters"
	case s == "" && (!f.need || f.form.pattern == ""):
		return ""
	case len(f.one) > 0 && !slices.Contains(f.one, s):
		return "want " + alternatives(f.one)
	case f.form.pattern != "" && !regexp.MustCompile(f.form.pattern).MatchString(s):
		return "want " + f.form.want
	}
	return ""
}

// alternatives puts values in words: a, b or c.
func alternatives(all []string) string {
	last := len(all) - 1
	if last == 0 {
		return all[0]
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// amount is a bound of a tag, for a field of that type.
func amount(t reflect.Type, text string) int64 {
	var n int64
	var err error
	switch t {
	case reflect.TypeFor[time.Duration]():
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int64(d)
	case reflect.TypeFor[Size]():
		var s Size
		s, err = ParseSize(text)
		n = int64(s)
	default:
		n, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		panic("config: a tag: " + err.Error())
	}
	return n
}
