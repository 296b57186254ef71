//! The types of exported functions as text in the syntax of WIT. Named types are replaced by their definitions, because
//! types are compared by their structure, and names of parameters are left out.
//!
//! wasmtime compares the type of an export when it is first called. The host compares it when it loads the component.

use std::fmt::{self, Write};

use wasmparser::{
    component_types::{ComponentDefinedType, ComponentEntityType, ComponentValType},
    types::Types,
};

use super::{offer::WorldKind, text::bounded};

/// A longer type is cut. The contract's types are shorter, so a type that was cut never equals one of them.
const MAX_BYTES: usize = 1 << 10;

/// Returns the type that `reconcile` has in this world.
pub(super) fn of_reconcile(world: WorldKind) -> String {
    let pod = match world {
        WorldKind::Native => "list<u8>",
        WorldKind::Json | WorldKind::Script => "string",
    };
    format!(
        "func(record {{ key: record {{ namespace: string, name: string, uid: string }}, subject: variant {{ \
         present({pod}), deleted(option<{pod}>) }}, now-millis: u64, attempt: u32, config: string, unsettled-writes: \
         list<record {{ id: u32, description: string, result: variant {{ applied, unchanged, conflict, \
         owned-by-other(string), blocked(string), gone, forbidden(string), invalid(string), not-sent, unknown }} }}> \
         }}) -> result<variant {{ settled, requeue-after-millis(u64), stop }}, variant {{ retry(string), \
         terminal(string) }}>"
    )
}

/// Returns the type of a function of an exported interface, if the component exports it.
pub(super) fn of_export(types: &Types, interface: &str, function: &str) -> Option<String> {
    let ComponentEntityType::Instance(instance) = types.component_item_for_export(interface)?.ty else { return None };
    let ComponentEntityType::Func(function) = types[instance].exports.get(function)?.ty else { return None };
    let function = &types[function];
    let mut text = Text { types, text: String::new() };
    let params = function.params.iter().map(|(_, param)| (None, Some(*param)));
    // A text that was cut is enough of an answer.
    let _ = text.function(function.async_, params, function.result);
    Some(bounded(&text.text, MAX_BYTES))
}

/// An item of a list in a type: its name and its type, of which it has one at least.
type Item<'a> = (Option<&'a str>, Option<ComponentValType>);

struct Text<'a> {
    types: &'a Types,
    text: String,
}

impl Text<'_> {
    fn function<'a>(
        &mut self,
        is_async: bool,
        params: impl Iterator<Item = Item<'a>>,
        result: Option<ComponentValType>,
    ) -> fmt::Result {
        self.push(if is_async { "async func(" } else { "func(" })?;
        self.list(params, "")?;
        self.push(")")?;
        match result {
            Some(result) => self.push(" -> ").and_then(|()| self.value(result)),
            None => Ok(()),
        }
    }

    /// Fails when the text is long enough: what a type refers to several times is written several times, and a small
    /// component can so have a type of any length.
    fn push(&mut self, text: &str) -> fmt::Result {
        if self.text.len() > MAX_BYTES {
            return Err(fmt::Error);
        }
        self.text.write_str(text)
    }

    /// Appends items, each as its name, the separator and its type. Without a separator the type is in parentheses if
    /// there is a name too.
    fn list<'a>(&mut self, items: impl Iterator<Item = Item<'a>>, separator: &str) -> fmt::Result {
        for (at, (name, of)) in items.enumerate() {
            self.push(if at > 0 { ", " } else { "" })?;
            self.push(name.unwrap_or_default())?;
            let Some(of) = of else { continue };
            let in_parentheses = name.is_some() && separator.is_empty();
            self.push(if in_parentheses { "(" } else { separator })?;
            self.value(of)?;
            self.push(if in_parentheses { ")" } else { "" })?;
        }
        Ok(())
    }

    /// Appends a type with types as its parameters.
    fn generic(&mut self, name: &str, of: &[Option<ComponentValType>]) -> fmt::Result {
        self.push(name)?;
        if of.iter().all(Option::is_none) {
            return Ok(());
        }
        self.push("<")?;
        let names = of.iter().map(|of| (of.is_none().then_some("_"), *of));
        self.list(names, "")?;
        self.push(">")
    }

    /// Appends a type with names in braces.
    fn named<'a>(&mut self, kind: &str, items: impl Iterator<Item = Item<'a>>, separator: &str) -> fmt::Result {
        self.push(kind)?;
        self.push(" { ")?;
        self.list(items, separator)?;
        self.push(" }")
    }

    fn value(&mut self, value: ComponentValType) -> fmt::Result {
        let defined = match value {
            ComponentValType::Primitive(primitive) => return self.push(&primitive.to_string()),
            ComponentValType::Type(defined) => &self.types[defined],
        };
        match defined {
            ComponentDefinedType::Primitive(primitive) => self.push(&primitive.to_string()),
            ComponentDefinedType::Record(record) => {
                self.named("record", record.fields.iter().map(|(name, of)| (Some(name.as_str()), Some(*of))), ": ")
            }
            ComponentDefinedType::Variant(variant) => {
                self.named("variant", variant.cases.iter().map(|(name, case)| (Some(name.as_str()), case.ty)), "")
            }
            ComponentDefinedType::Enum(names) => {
                self.named("enum", names.iter().map(|name| (Some(name.as_str()), None)), "")
            }
            ComponentDefinedType::Flags(names) => {
                self.named("flags", names.iter().map(|name| (Some(name.as_str()), None)), "")
            }
            ComponentDefinedType::Tuple(tuple) => {
                self.generic("tuple", &tuple.types.iter().copied().map(Some).collect::<Vec<_>>())
            }
            ComponentDefinedType::List { element, .. } => self.generic("list", &[Some(*element)]),
            ComponentDefinedType::Option { ty, .. } => self.generic("option", &[Some(*ty)]),
            ComponentDefinedType::Result { ok, err, .. } => self.generic("result", &[*ok, *err]),
            ComponentDefinedType::Own(_) => self.push("own"),
            ComponentDefinedType::Borrow(_) => self.push("borrow"),
            // Types of proposals that are refused before.
            _ => self.push("a type of a proposal"),
        }
    }
}
