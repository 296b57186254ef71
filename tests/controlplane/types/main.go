// Prints the table of Go types behind the kinds that host/devcluster serves,
// by reflection over k8s.io/api: host/devcluster/src/types/table.txt is its
// output. Run it again when the Kubernetes version in go.mod changes:
//
//	go run ./types > ../../host/devcluster/src/types/table.txt
//
// One line is one struct: its name, then field:type of each field in the order
// of the struct. A "?" after the field's name means that the encoder may leave
// the field out; a "~" that the API requires it all the same, or does not
// require it without a "?". "VolumeSource>hostPath" is a field of an embedded struct. A
// type is a scalar, a struct of another line, [type] for a list or {type} for
// a map with text as keys; "*" before it marks a pointer, and "type/name" has
// the name that Go prints for it if that is another.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var roots = []any{
	core.Binding{}, core.ConfigMap{}, core.Event{}, core.Namespace{}, core.Node{}, core.Pod{}, core.Secret{},
	core.ServiceAccount{}, apiextensions.CustomResourceDefinition{}, authentication.SelfSubjectReview{},
	authorization.SelfSubjectAccessReview{}, authorization.SelfSubjectRulesReview{}, coordination.Lease{},
	events.Event{}, policy.Eviction{}, policy.PodDisruptionBudget{}, rbac.ClusterRole{}, rbac.ClusterRoleBinding{},
	rbac.Role{}, rbac.RoleBinding{}, apps.ControllerRevision{}, apps.Deployment{},
	apps.ReplicaSet{}, apps.StatefulSet{}, autoscaling.Scale{}, batch.Job{},
}

// Types that read JSON in their own way.
var special = map[reflect.Type]string{
	reflect.TypeFor[meta.Time]():                                  "time",
	reflect.TypeFor[meta.MicroTime]():                             "microtime",
	reflect.TypeFor[resource.Quantity]():                          "quantity",
	reflect.TypeFor[intstr.IntOrString]():                         "int-or-string",
	reflect.TypeFor[meta.FieldsV1]():                              "any",
	reflect.TypeFor[runtime.RawExtension]():                       "any",
	reflect.TypeFor[apiextensions.JSON]():                         "any",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():       "any",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():        "any",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](): "any",
}

var (
	lines      = map[string]string{}
	names      = []string{}
	commentsOf = map[string]map[string]string{}
)

func main() {
	for _, root := range roots {
		describe(reflect.TypeOf(root))
	}
	slices.Sort(names)
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, "# Written by tests/controlplane/types, which says what the lines mean.")
	for _, name := range names {
		fmt.Fprintln(out, name+lines[name])
	}
	if err := out.Flush(); err != nil {
		panic(err)
	}
}

func describe(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if word, ok := special[t]; ok {
		return word
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		panic(fmt.Sprintf("%v reads JSON in its own way", t))
	}
	if t.Kind() == reflect.Struct {
		return object(t)
	}
	word := ""
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Int32, reflect.Int64, reflect.Float64:
		word = t.Kind().String()
	case reflect.Slice:
		word = "bytes"
		if t.Elem().Kind() != reflect.Uint8 {
			word = "[" + describe(t.Elem()) + "]"
		}
	case reflect.Map:
		word = "{" + describe(t.Elem()) + "}"
	default:
		panic(fmt.Sprintf("%v is of kind %v", t, t.Kind()))
	}
	if t.PkgPath() != "" {
		word += "/" + t.String()
	}
	return word
}

func object(t reflect.Type) string {
	group := strings.Split(strings.TrimSuffix(t.PkgPath(), "/v1"), "/")
	name := group[len(group)-1] + "." + t.Name()
	if _, known := lines[name]; known {
		return name
	}
	names = append(names, name)
	lines[name] = ""
	lines[name] = fields(t, "")
	return name
}

// The +optional and +required comments of a package, by struct and field.
func comments(t reflect.Type) map[string]string {
	found, known := commentsOf[t.PkgPath()]
	if known {
		return found
	}
	found = map[string]string{}
	commentsOf[t.PkgPath()] = found
	source, err := build.Import(t.PkgPath(), ".", 0)
	if err != nil {
		panic(err)
	}
	for _, name := range source.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(source.Dir, name), nil, parser.ParseComments)
		if err != nil {
			panic(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			declared, isType := node.(*ast.TypeSpec)
			if !isType {
				return true
			}
			if object, isStruct := declared.Type.(*ast.StructType); isStruct {
				for _, field := range object.Fields.List {
					names := field.Names
					if embedded, isImported := field.Type.(*ast.SelectorExpr); isImported && len(names) == 0 {
						names = []*ast.Ident{embedded.Sel}
					}
					for _, name := range names {
						found[declared.Name.Name+"."+name.Name] = marker(field.Doc)
					}
				}
			}
			return false
		})
	}
	return found
}

func marker(doc *ast.CommentGroup) string {
	if doc == nil {
		return ""
	}
	for _, line := range doc.List {
		if text := strings.TrimSpace(strings.TrimPrefix(line.Text, "//")); text == "+optional" || text == "+required" {
			return text
		}
	}
	return ""
}

func fields(t reflect.Type, embedded string) string {
	line := ""
	for i := range t.NumField() {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("json"), ",")
		if tag[0] == "-" {
			continue
		}
		if tag[0] == "" {
			if !field.Anonymous {
				panic(fmt.Sprintf("%v.%s has no name in JSON", t, field.Name))
			}
			inner := field.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			line += fields(inner, embedded+field.Name+">")
			continue
		}
		optional := ""
		mayBeMissing := slices.Contains(tag, "omitempty") || slices.Contains(tag, "omitzero")
		if mayBeMissing {
			optional = "?"
		}
		if comment := comments(t)[t.Name()+"."+field.Name]; comment != "" && (comment == "+optional") != mayBeMissing {
			optional += "~"
		}
		pointer := ""
		if field.Type.Kind() == reflect.Pointer {
			pointer = "*"
		}
		line += " " + embedded + tag[0] + optional + ":" + pointer + describe(field.Type)
	}
	return line
}
