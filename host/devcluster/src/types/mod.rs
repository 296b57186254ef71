//! The Go types of the built-in kinds, read from `table.txt`: the fields of an object and their types.
//! `tests/controlplane/types` generates the table from k8s.io/api and documents its format. `rules` decides which
//! values are valid.

mod apply;
mod decode;
mod scalar;
mod wrong;

pub(crate) use apply::mismatches;
pub(crate) use decode::{Decoded, decode, decode_any, decode_operations};
use std::{collections::BTreeMap, sync::LazyLock};

use wrong::Wrong;

use crate::kinds::Kind;

const TABLE: &str = include_str!("table.txt");
/// An operation of a JSON patch.
const OPERATION: &str = "patch.Operation op?:string path?:string from?:string value?:any";

static TYPES: LazyLock<BTreeMap<&'static str, Struct>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.chain([OPERATION]).map(Struct::parse).map(|parsed| (parsed.name, parsed)).collect()
});

/// All custom resources: their metadata is typed, and the schema of their definition covers everything else.
static CUSTOM: LazyLock<Struct> = LazyLock::new(|| Struct {
    open: true,
    ..Struct::parse("custom.Resource kind?:string apiVersion?:string metadata?:meta.ObjectMeta")
});

/// A Go struct.
#[derive(Clone, Debug)]
pub(crate) struct Struct {
    /// The name, prefixed by the first word of the API group: `core.Pod`.
    pub(crate) name: &'static str,
    /// Fields in the order of the Go struct.
    pub(crate) fields: Vec<Field>,
    /// Whether fields that are not in the list are kept.
    open: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    /// Whether Go omits the field from JSON if it is empty.
    optional: bool,
    /// Whether the API requires the field, as in OpenAPI.
    pub(crate) required: bool,
    /// Whether the field is a pointer, so that a zero value is not empty.
    pointer: bool,
    /// The embedded structs that contain the field, joined by dots.
    embedded: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    Bool,
    /// A string, with Go's name of the type.
    String(&'static str),
    Int32,
    Int64,
    Float64,
    /// Bytes, base64 in JSON.
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Any,
    /// A struct, with its name in the table.
    Struct(&'static str),
    /// A list, with Go's name of the type; empty if it has no name of its own.
    List(Box<Type>, &'static str),
    /// A map with text as keys, with the name as for a list.
    Map(Box<Type>, &'static str),
}

impl Struct {
    fn parse(line: &'static str) -> Self {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        Self { name, fields: words.filter_map(Field::parse).collect(), open: false }
    }

    /// Returns the struct of a kind's objects.
    pub(crate) fn for_kind(kind: &Kind) -> &'static Self {
        if kind.custom { &CUSTOM } else { Self::of_object(&kind.group, &kind.kind) }
    }

    /// Returns the struct of a subresource's request body.
    pub(crate) fn of_subresource(kind: &Kind, subresource: &str) -> &'static Self {
        let own = kind.subresources.iter().find(|sub| sub.name == subresource);
        own.map_or_else(|| Self::for_kind(kind), |sub| Self::of_object(sub.group_version.0, sub.kind))
    }

    fn of_object(group: &str, kind: &str) -> &'static Self {
        let group = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
        Self::named(&format!("{group}.{kind}"))
    }

    /// Returns the struct of this name. A test verifies that the table has every requested struct.
    pub(crate) fn named(name: &str) -> &'static Self {
        TYPES.get(name).unwrap_or(&CUSTOM)
    }

    /// Returns the name without the group, which is Go's own.
    pub(crate) fn short_name(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, name)| name)
    }

    fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Field {
    fn parse(word: &'static str) -> Option<Self> {
        let (name, kind) = word.split_once(':')?;
        let (embedded, name) = name.rsplit_once('>').unwrap_or(("", name));
        let (name, opposite) = name.strip_suffix('~').map_or((name, false), |name| (name, true));
        let (name, optional) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
        let (kind, pointer) = kind.strip_prefix('*').map_or((kind, false), |kind| (kind, true));
        Some(Self {
            name,
            kind: Type::parse(kind)?,
            optional,
            required: optional == opposite,
            pointer,
            embedded: embedded.replace('>', "."),
        })
    }
}

impl Type {
    fn parse(word: &'static str) -> Option<Self> {
        let inner = word.get(1..).unwrap_or_default();
        let close = |end| word.rfind(end);
        let shown = |end: usize| word.get(end + 1..).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
        let element = |end: usize| Self::parse(inner.get(..end.checked_sub(1)?)?).map(Box::new);
        if word.starts_with('[') {
            let end = close(']')?;
            return Some(Self::List(element(end)?, shown(end)));
        }
        if word.starts_with('{') {
            let end = close('}')?;
            return Some(Self::Map(element(end)?, shown(end)));
        }
        let (base, shown) = word.split_once('/').unwrap_or((word, word));
        Some(match base {
            "bool" => Self::Bool,
            "string" => Self::String(shown),
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "float64" => Self::Float64,
            "bytes" => Self::Bytes,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "quantity" => Self::Quantity,
            "int-or-string" => Self::IntOrString,
            "any" => Self::Any,
            name if name.contains('.') => Self::Struct(name),
            _ => return None,
        })
    }

    /// Returns the type's name in Go's error messages.
    fn shown(&self) -> String {
        match self {
            Self::Bool => "bool".into(),
            Self::String(shown) => (*shown).into(),
            Self::Int32 => "int32".into(),
            Self::Int64 => "int64".into(),
            Self::Float64 => "float64".into(),
            Self::Bytes => "[]uint8".into(),
            Self::Time => "v1.Time".into(),
            Self::MicroTime => "v1.MicroTime".into(),
            Self::Quantity => "resource.Quantity".into(),
            Self::IntOrString => "intstr.IntOrString".into(),
            Self::Any => "interface {}".into(),
            Self::Struct(name) => format!("v1.{}", Struct::named(name).short_name()),
            Self::List(_, shown) | Self::Map(_, shown) if !shown.is_empty() => (*shown).into(),
            Self::List(element, _) => format!("[]{}", element.shown()),
            Self::Map(element, _) => format!("map[string]{}", element.shown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    #[test]
    fn every_type_of_the_table_is_read() {
        fn check(kind: &Type) {
            match kind {
                Type::Struct(name) => assert!(TYPES.contains_key(name), "{name}"),
                Type::List(element, _) | Type::Map(element, _) => check(element),
                _ => {}
            }
        }
        for (line, parsed) in TABLE.lines().filter(|line| !line.starts_with('#')).map(|l| (l, Struct::parse(l))) {
            assert_eq!(parsed.fields.len(), line.split(' ').count() - 1, "{line}");
            parsed.fields.iter().for_each(|field| check(&field.kind));
        }
        for kind in Kinds::default().iter() {
            assert!(!Struct::for_kind(kind).open, "{} is not in the table", kind.kind);
            for sub in &kind.subresources {
                assert!(!Struct::of_subresource(kind, sub.name).open, "{} is not in the table", sub.kind);
            }
        }
    }

    #[test]
    fn types_are_named_as_go_names_them() {
        let shown = |name: &str, field: &str| Struct::named(name).field(field).unwrap().kind.shown();
        assert_eq!(shown("core.PodSpec", "containers"), "[]v1.Container");
        assert_eq!(shown("core.Container", "imagePullPolicy"), "v1.PullPolicy");
        assert_eq!(shown("core.ResourceRequirements", "limits"), "v1.ResourceList");
        assert_eq!(shown("core.ConfigMap", "data"), "map[string]string");
        assert_eq!(shown("core.Capabilities", "add"), "[]v1.Capability");
        assert_eq!(Struct::named("core.Volume").field("hostPath").unwrap().embedded, "VolumeSource");
    }
}
