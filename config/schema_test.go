package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// wrong says what a value has against a schema, as far as the keywords go that Schema uses; "" if
// nothing.
func wrong(s map[string]any, v any) string {
	if all, ok := s["anyOf"].([]any); ok {
		var whys []string
		for _, one := range all {
			why := wrong(one.(map[string]any), v)
			if why == "" {
				return ""
			}
			whys = append(whys, why)
		}
		return strings.Join(whys, "; ")
	}
	if one, ok := s["enum"].([]any); ok && !slices.Contains(one, v) {
		return fmt.Sprintf("%v is none of %v", v, one)
	}
	if t, ok := s["type"]; ok && !isOf(t, v) {
		return fmt.Sprintf("%v is no %v", v, t)
	}
	switch v := v.(type) {
	case string:
		if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v) {
			return fmt.Sprintf("%q is not of the form %s", v, p)
		}
	case float64:
		if least, ok := s["minimum"].(float64); ok && v < least {
			return fmt.Sprintf("%v is below %v", v, least)
		}
		if most, ok := s["maximum"].(float64); ok && v > most {
			return fmt.Sprintf("%v is above %v", v, most)
		}
	case []any:
		for _, item := range v {
			if why := wrong(s["items"].(map[string]any), item); why != "" {
				return why
			}
		}
	case map[string]any:
		return wrongObject(s, v)
	}
	return ""
}

func wrongObject(s, v map[string]any) string {
	need, _ := s["required"].([]any)
	for _, key := range need {
		if _, ok := v[key.(string)]; !ok {
			return fmt.Sprintf("%v is missing", key)
		}
	}
	if all, ok := s["oneOf"].([]any); ok {
		fit := 0
		for _, one := range all {
			if _, ok := v[one.(map[string]any)["required"].([]any)[0].(string)]; ok {
				fit++
			}
		}
		if fit != 1 {
			return fmt.Sprintf("%d of %v, want 1", fit, all)
		}
	}
	properties := s["properties"].(map[string]any)
	for key, value := range v {
		p, ok := properties[key].(map[string]any)
		if !ok {
			return key + " is unknown"
		}
		if why := wrong(p, value); why != "" {
			return key + ": " + why
		}
	}
	return ""
}

func isOf(t, v any) bool {
	if several, ok := t.([]any); ok {
		return slices.ContainsFunc(several, func(one any) bool { return isOf(one, v) })
	}
	switch v := v.(type) {
	case nil:
		return t == "null"
	case string:
		return t == "string"
	case bool:
		return t == "boolean"
	case float64:
		return t == "number" || t == "integer" && v == float64(int64(v))
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	}
	return false
}

func theSchema(t *testing.T) map[string]any {
	t.Helper()
	b, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON is a YAML text as a JSON value.
func asJSON(t *testing.T, text string) (v any) {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

// configurations finds those in the documents: blocks of YAML that have sources.
func configurations(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != ".." {
			return cmp.Or(err, fs.SkipDir)
		}
		if ext := filepath.Ext(path); ext != ".md" && ext != ".yaml" && ext != ".yml" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		blocks := [][]string{{"", string(b)}}
		if filepath.Ext(path) == ".md" {
			blocks = block.FindAllStringSubmatch(string(b), -1)
		}
		for i, m := range blocks {
			if strings.Contains(m[1], "\nsources:") {
				found[fmt.Sprintf("%s#%d", path, i)] = m[1]
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What the guide and the README show is accepted, by the program and by the schema.
func TestDocumentsShowGoodConfigurations(t *testing.T) {
	all := configurations(t)
	if len(all) < 2 {
		t.Fatalf("only %d configurations are found", len(all))
	}
	all["goodConfig"] = goodConfig
	for name, text := range all {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if why := wrong(theSchema(t), asJSON(t, text)); why != "" {
			t.Errorf("%s: the schema refuses it: %s", name, why)
		}
	}
}

// The guide names every key, and where it shows a default, it is the one that the program takes.
func TestGuideHasEveryKey(t *testing.T) {
	b, err := os.ReadFile("../docs/guide/config.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(b)
	var look func(path string, s map[string]any)
	look = func(path string, s map[string]any) {
		if items, ok := s["items"].(map[string]any); ok {
			look(path+"[]", items)
		}
		if all, ok := s["anyOf"].([]any); ok {
			look(path, all[1].(map[string]any))
		}
		properties, _ := s["properties"].(map[string]any)
		for key, p := range properties {
			p := p.(map[string]any)
			if !regexp.MustCompile(`\b` + key + `\b`).MatchString(guide) {
				t.Errorf("the guide does not name %s.%s", path, key)
			}
			if p["description"] == "" {
				t.Errorf("%s.%s has no description", path, key)
			}
			if d, ok := p["default"]; ok && !strings.Contains(guide, fmt.Sprintf("%s: %v", key, d)) {
				t.Errorf("the guide does not show %s: %v", key, d)
			}
			look(path+"."+key, p)
		}
	}
	look("", theSchema(t))
}

// The schema refuses what is wrong with a single field.
func TestSchemaRefuses(t *testing.T) {
	s := theSchema(t)
	if wrong(s, map[string]any{"log": map[string]any{"dir": "a\x00"}}) == "" {
		t.Error("the schema accepts a control character")
	}
	if wrong(s, map[string]any{"notify": map[string]any{"command": []any{"a\x00"}}}) == "" {
		t.Error("the schema accepts a command with a byte of zero")
	}
	if _, err := Parse([]byte(`notify: {command: ["a\u0000"]}`)); err == nil {
		t.Error("the program accepts a command with a byte of zero")
	}
	for _, text := range []string{
		"sorces: []", "log: {dri: x}", "log: {sync: sometimes}", "log: {delay: fast}", "log: {delay: 5}",
		"log: {segment: 3 bananas}",
		"server: {loops: 1000}", "log: [1]", "api: {token: short}", "sources: {id: a}", "sources: [{frame: raw}]",
		"sources: [{id: a}]",
		"sources: [{id: a b, frame: raw}]", "sources: [{id: a, frame: tally129}]",
		"sources: [{id: a, frame: {max: 5}}]",
		"sources: [{id: a, frame: raw, serial: {baud: 9600}}]",
		"sources: [{id: a, frame: raw, serial: {port: x, baud: 1}}]",
		"read: {readers: 0}", "log: {records: 0}", "notify: {queue: 0}", "notify: {webhook: ftp://a/b}",
		"sources: [{id: a, frame: raw}]", "sources: [{id: a, frame: raw, tcp: {listen: ':1', dial: 'a:1'}}]",
		"sources: [{id: a, frame: raw, serial: {port: x}, udp: {listen: ':1'}}]",
		"sources: [{id: a, frame: line, udp: {listen: ':1'}, expect: {tolerance: 5%}}]",
		"sources: [{id: a, frame: raw, udp: {dial: 'a:1'}}]",
		"sources: [{id: a, frame: raw, udp: {listen: ':1', peers: all}}]",
		"read: {strategy: ''}", "log: {engine: ''}", "log: {on_full: ''}", "forward: [{to: nats, stream: -1}]",
		"forward: [{to: nats, max_bytes: 1.5}]", "forward: [{to: nats, max_bytes: '1.5'}]", "log: {dir: 1.5}",
	} {
		if wrong(s, asJSON(t, text)) == "" {
			t.Errorf("the schema accepts %s", text)
		}
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("the program accepts %s", text)
		}
	}
}

// What the program takes for nothing, or as a text without quotes, the schema takes, too.
func TestSchemaTakesWhatTheProgramTakes(t *testing.T) {
	const source = "sources: [{id: a, frame: raw, udp: {listen: ':1'}}]"
	for _, text := range []string{
		"forward: [{to: nats, source: null, replicas: null, batch: null}]\n" + source,
		"log: {keep: null, engine: null, dir: null, prove: null}\n" + source,
		"forward: [{to: nats, stream: ''}]\n" + source,
		"sources: [{id: 0, frame: raw, serial: {port: 255, rs485: {rts_on_send: null}}}]",
		"sources: [{id: true, frame: raw, udp: {listen: ':1'}}]",
		"sources: [{id: false, frame: raw, udp: {listen: ':1'}}]",
		"log: {keep: {size: 1.5GiB}}\n" + source,
	} {
		if why := wrong(theSchema(t), asJSON(t, text)); why != "" {
			t.Errorf("the schema refuses %s: %s", text, why)
		}
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("the program refuses %s: %v", text, err)
		}
	}
}

// The guide has the bounds of every number, time and size that has any, and the schema says them.
func TestGuideHasEveryBound(t *testing.T) {
	b, err := os.ReadFile("../docs/guide/config.md")
	if err != nil {
		t.Fatal(err)
	}
	guide, seen := string(b), 0
	var look func(path string, s reflect.Type, lacking []string)
	look = func(path string, s reflect.Type, lacking []string) {
		switch s.Kind() {
		case reflect.Pointer:
			look(path, s.Elem(), lacking)
		case reflect.Slice:
			look(path+"[]", s.Elem(), nil)
		case reflect.Struct:
			for i := range s.NumField() {
				f := fieldOf(s.Field(i))
				if slices.Contains(lacking, f.key) {
					continue
				}
				path := below(path, f.key)
				if f.max != "" || strings.Trim(f.min, "0s") != "" {
					seen++
					row := fmt.Sprintf("| `%s` | %s | %s |\n", path, f.min, cmp.Or(f.max, "–"))
					if !strings.Contains(guide, row) {
						t.Errorf("the guide lacks %s", row)
					}
				}
				look(path, s.Field(i).Type, strings.Fields(s.Field(i).Tag.Get("lacks")))
			}
		}
	}
	look("", reflect.TypeFor[Config](), nil)
	if seen < 20 {
		t.Errorf("only %d bounds are found", seen)
	}
	of := func(s map[string]any, key string) map[string]any {
		return s["properties"].(map[string]any)[key].(map[string]any)
	}
	if d := of(of(theSchema(t), "log"), "segment")["description"]; d != "size of a segment file; want 1MiB to 16GiB" {
		t.Errorf("the schema says of a segment: %v", d)
	}
}
