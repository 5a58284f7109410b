package config

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schema is the JSON schema of the configuration file (draft 2020-12), for editors and for programs
// that write one. It is made from the types, so it says what the checks say of single fields, and
// of which keys there must be one alone; what else concerns several is beyond it.
func Schema() ([]byte, error) {
	// One of each, so that there is a default to be shown for every field.
	yes := true
	sample := Config{
		Log:     Log{Keep: Keep{Unforwarded: &yes}},
		Notify:  Notify{Command: []string{""}},
		Forward: []Forward{{To: "nats", URLs: []string{""}}},
		Sources: []Source{{
			Serial: &Serial{RS485: &RS485{}}, TCP: &Net{}, UDP: &Net{}, Expect: &Expect{},
			Spill: &Spill{},
		}},
	}.WithDefaults()
	s := schemaOf(reflect.ValueOf(sample))
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "configuration of tallywheel"
	return json.MarshalIndent(s, "", "  ")
}

// schema is a schema of JSON, by keyword.
type schema map[string]any

// durationPattern is what time.ParseDuration reads, but for signs.
const durationPattern = `^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$|^0$`

// schemaOf is the schema of a value that has its defaults.
func schemaOf(v reflect.Value) schema {
	switch v.Kind() {
	case reflect.Pointer:
		return schemaOf(v.Elem())
	case reflect.Slice:
		items := schemaOf(v.Index(0))
		if items["type"] == "string" { // words of a command, of any lines
			items["pattern"] = `^[^\x00]*$`
		}
		return schema{"type": "array", "items": items}
	case reflect.Struct:
		s := sectionSchema(v)
		if v.Type() == reflect.TypeFor[Frame]() { // a name alone, or a mapping
			kind, _ := v.Type().FieldByName("Kind")
			return schema{"anyOf": []schema{{"enum": fieldOf(kind).one}, s}}
		}
		return s
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return schema{"type": "string", "pattern": durationPattern}
	case v.Type() == reflect.TypeFor[Size]():
		return schema{"type": []string{"string", "integer"}, "pattern": sizePattern, "minimum": 0}
	case v.Kind() == reflect.Bool:
		return schema{"type": "boolean"}
	case v.Kind() == reflect.Int:
		return schema{"type": "integer"}
	}
	return schema{"type": "string", "pattern": `^[^\x00-\x1f]*$`}
}

// bare has a text be a whole number from 0 on, or true or false, too: the program takes them as
// they are written. Where the text must have another form, it has to be a text.
func (s schema) bare(f field) {
	if s["type"] == "string" && regexp.MustCompile(f.form.pattern).MatchString("0") {
		s["type"], s["minimum"] = []string{"string", "integer", "boolean"}, 0
	}
}

// orNull has a field be null, too: as if it were not there.
func (s schema) orNull() schema {
	switch t := s["type"].(type) {
	case string:
		s["type"] = []string{t, "null"}
	case []string:
		s["type"] = append(t, "null")
	}
	if one, ok := s["enum"].([]string); ok {
		all := make([]any, 0, len(one)+1)
		for _, word := range one {
			all = append(all, word)
		}
		s["enum"] = append(all, nil)
	}
	if forms, ok := s["anyOf"].([]schema); ok {
		s["anyOf"] = append(forms, schema{"type": "null"})
	}
	return s
}

func sectionSchema(v reflect.Value) schema {
	properties, need := schema{}, []string{}
	for i := range v.NumField() {
		f, value := fieldOf(v.Type().Field(i)), v.Field(i)
		s := schemaOf(value)
		for _, key := range strings.Fields(v.Type().Field(i).Tag.Get("lacks")) {
			s.without(key)
		}
		s["description"] = f.about
		if value.Kind() == reflect.String {
			s.bare(f)
		}
		if f.form.pattern != "" {
			s["pattern"] = f.form.pattern
			if !f.need { // a text that says nothing
				s["pattern"] = "^$|" + f.form.pattern
			}
		}
		if len(f.one) > 0 {
			s = schema{"enum": f.one, "description": f.about}
		}
		switch {
		case value.Kind() == reflect.Int:
			s.bounds(f)
		case f.min+f.max != "": // of times and sizes, which are texts: a schema has no words for it
			s["description"] = f.about + "; " + f.span()
		}
		if shown := plain(value); shown != nil {
			s["default"] = shown
		}
		if f.need {
			need = append(need, f.key)
		} else if !slices.Contains(alone[v.Type()], f.key) {
			s = s.orNull()
		}
		properties[f.key] = s
	}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(need) > 0 {
		s["required"] = need
	}
	if one := alone[v.Type()]; one != nil {
		var each []schema
		for _, key := range one {
			each = append(each, schema{"required": []string{key}})
		}
		s["oneOf"] = each
	}
	return s
}

// alone are the keys of sections of which there must be one, and no more.
var alone = map[reflect.Type][]string{
	reflect.TypeFor[Source](): {"serial", "tcp", "udp"},
	reflect.TypeFor[Net]():    {"listen", "dial"},
}

// without takes a key out of a section, also where it is one of which there must be one.
func (s schema) without(key string) {
	delete(s["properties"].(schema), key)
	if each, ok := s["oneOf"].([]schema); ok {
		s["oneOf"] = slices.DeleteFunc(each, func(one schema) bool { return one["required"].([]string)[0] == key })
	}
}

func (s schema) bounds(f field) {
	for keyword, text := range map[string]string{"minimum": f.min, "maximum": f.max} {
		if n, err := strconv.Atoi(text); err == nil {
			s[keyword] = n
		}
	}
}

// plain is a default as the file would say it; nil where there is none.
func plain(v reflect.Value) any {
	switch {
	case v.IsZero() || v.Kind() == reflect.Struct || v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice:
		return nil
	case v.Type() == reflect.TypeFor[time.Duration]():
		return v.Interface().(time.Duration).String()
	case v.Type() == reflect.TypeFor[Size]():
		return v.Interface().(Size).String()
	}
	return v.Interface()
}
