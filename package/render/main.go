// SPDX-License-Identifier: Apache-2.0

// render CHART NAMESPACE NAME=VALUE...: prints the objects of a Helm chart, with text values in
// place of some of its own: isolation=privileged, store.secret=NAME.  It has what package/kubernetes/chart uses of Helm: the same template
// engine and functions, in seconds instead of a quarter of an hour.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

type files string

func (chart files) Get(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(string(chart), name))
	return string(data), err
}

func load(chart, name string) (map[string]any, error) {
	object := map[string]any{}
	data, err := os.ReadFile(filepath.Join(chart, name))
	if err == nil {
		err = yaml.Unmarshal(data, &object)
	}
	return object, err
}

func parse(chart string) (*template.Template, []string, error) {
	all := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, data any) (string, error) {
		var text bytes.Buffer
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	functions["toYaml"] = func(value any) (string, error) {
		data, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(data), "\n"), err
	}
	all.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	var names []string
	for _, path := range paths {
		data, failed := os.ReadFile(path)
		if failed == nil {
			_, failed = all.New(path).Parse(string(data))
		}
		if failed != nil {
			return nil, nil, failed
		}
		if strings.HasSuffix(path, ".yaml") {
			names = append(names, path)
		}
	}
	return all, names, err
}

// set replaces a value that the chart has.
func set(values map[string]any, setting string) error {
	path, value, found := strings.Cut(setting, "=")
	names := strings.Split(path, ".")
	last := len(names) - 1
	for _, name := range names[:last] {
		values, _ = values[name].(map[string]any)
	}
	if _, known := values[names[last]]; !found || !known {
		return fmt.Errorf("%s: no such value, or no =", setting)
	}
	values[names[last]] = value
	return nil
}

func render(chart, namespace string, settings []string) error {
	about, err := load(chart, "Chart.yaml")
	if err != nil {
		return err
	}
	values, err := load(chart, "values.yaml")
	if err != nil {
		return err
	}
	for _, setting := range settings {
		if err = set(values, setting); err != nil {
			return err
		}
	}
	data := map[string]any{
		"Values":  values,
		"Chart":   map[string]any{"AppVersion": about["appVersion"]},
		"Release": map[string]any{"Name": "cay", "Namespace": namespace, "Service": "Helm"},
		"Files":   files(chart),
	}
	all, names, err := parse(chart)
	for _, name := range names {
		var text bytes.Buffer
		if err = all.ExecuteTemplate(&text, name, data); err != nil {
			return err
		}
		trimmed := strings.TrimSpace(strings.Replace(text.String(),
			"# SPDX-License-Identifier: Apache-2.0\n", "", 1))
		if trimmed != "" {
			fmt.Printf("---\n%s\n", trimmed)
		}
	}
	return err
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: render CHART NAMESPACE NAME=VALUE...")
		os.Exit(2)
	}
	if err := render(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}
