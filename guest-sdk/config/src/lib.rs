//! The schema of Podium's configuration, for everyone that reads it: the host, `podium`, and the SDK's test host.
//!
//! There are three kinds of documents: plugins, the platform's policy, and the cases of `podium test`. The types of
//! [`plugin`], [`policy`] and [`case`] are the only place where fields are defined. `schemars` derives the JSON Schema
//! from them, which editors complete by, and the collecting pass is driven by that same schema, so that a field, a
//! bound or a word cannot be known to one and unknown to another.
//!
//! A document is read in three steps:
//!
//! 1. YAML becomes a tree in which every value has its line. A text that is no YAML, or exceeds the bounds of [`yaml`],
//!    is one error about the whole file: serde's, because nothing behind it can be read. A key that is there twice is
//!    the only error of its document.
//! 2. The collecting pass compares the tree with the schema, and [`rules`] compare fields with each other. They report
//!    every mistake of the document at once, each with line, field and what to do.
//! 3. Only a document without a mistake is deserialized. The types check themselves too; a mistake that the pass does
//!    not find is reported by serde's error, with its field. Tests demand that no document reaches this case.
//!
//! Files, components and the relations between plugins are the host's; nothing here does IO.

#![warn(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

pub mod case;
mod check;
mod cluster_kinds;
mod crd;
mod field;
mod lines;
mod object;
pub mod plugin;
pub mod policy;
mod rules;
pub mod run_report;
mod schema;
mod spec;
pub mod status;
#[cfg(test)]
mod tests;
mod text;
mod yaml;

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use case::Case;
pub use crd::definitions;
pub use field::Problem;
use field::{Field, Problems};
pub use lines::Lines;
pub use object::plugin_object;
pub use plugin::{
    MAX_CONFIG_BYTES, MOST_AFTER, MOST_GRANTS, MOST_INPUTS, MOST_MEMORY_MIB, MOST_REQUIREMENTS, MOST_VALUES, Plugin,
};
pub use policy::Policy;
pub use spec::spec;
pub use text::{
    AnnotationPattern, ApiVersion, ConditionPattern, ConfigMapKey, DnsLabel, DnsSubdomain, FieldPath, FinalizerPattern,
    Image, InputKind, InputResource, LabelPattern, LabelValue, MAX_SCRIPT_BYTES, NonEmpty, ObjectKind, ObjectResource,
    PublicKey, QualifiedName, RegistryHost, Sha256,
};
use yaml::Node;

/// One document of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Document<T> {
    /// Where its fields are.
    pub lines: Lines,
    /// The document's content, or everything that is wrong with it.
    pub content: Result<T, Vec<Problem>>,
}

static PLUGIN: LazyLock<Value> = LazyLock::new(schema::generate::<Plugin>);
static POLICY: LazyLock<Value> = LazyLock::new(schema::generate::<Policy>);
static CASE: LazyLock<Value> = LazyLock::new(schema::generate::<Case>);

/// Reads the plugins of a file; empty documents are left out.
///
/// # Errors
/// A file that is not YAML or exceeds the bounds, with the line where reading ended.
pub fn plugins(yaml: &str) -> Result<Vec<Document<Plugin>>, Problem> {
    read(yaml, &PLUGIN, rules::plugin)
}

/// Returns the JSON Schema of a plugin's configuration.
#[must_use]
pub fn plugin_schema() -> Value {
    PLUGIN.clone()
}

/// Reads the cases of a file of `podium test`; empty documents are left out.
///
/// # Errors
/// See [`plugins`].
pub fn cases(yaml: &str) -> Result<Vec<Document<Case>>, Problem> {
    read(yaml, &CASE, case::rules)
}

/// Returns the JSON Schema of a case of `podium test`.
#[must_use]
pub fn case_schema() -> Value {
    CASE.clone()
}

/// Reads the policy of a file.
///
/// # Errors
/// Every mistake in the file; among them that it does not have exactly one document.
pub fn policy(yaml: &str) -> Result<Policy, Vec<Problem>> {
    let mut documents = read(yaml, &POLICY, rules::policy).map_err(|problem| vec![problem])?;
    let whole = |message: &str| Problem { line: None, field: String::new(), message: message.to_owned() };
    match documents.pop() {
        None => Err(vec![whole("has no document; a policy is one document of kind Policy")]),
        Some(document) if documents.is_empty() => document.content,
        Some(document) => {
            let more = "begins another document; a policy is one document, so put all rules into it";
            let mut problems: Vec<_> =
                documents.into_iter().filter_map(|document| document.content.err()).flatten().collect();
            problems.push(Problem { line: Some(document.lines.line("")), ..whole(more) });
            Err(problems)
        }
    }
}

/// Returns the JSON Schema of a policy.
#[must_use]
pub fn policy_schema() -> Value {
    POLICY.clone()
}

fn read<T: DeserializeOwned + JsonSchema>(
    yaml: &str,
    schema: &Value,
    rules: fn(&Field<'_>),
) -> Result<Vec<Document<T>>, Problem> {
    let documents = yaml::documents(yaml)?;
    let read = |node: &Node| Document { lines: Lines::new(node), content: judge(node, schema, rules) };
    Ok(documents.iter().filter(|node| !node.is_null()).map(read).collect())
}

/// Returns a document's content, or everything that is wrong with it.
fn judge<T: DeserializeOwned>(node: &Node, schema: &Value, rules: fn(&Field<'_>)) -> Result<T, Vec<Problem>> {
    if let Some(repeated) = node.repeated() {
        return Err(vec![repeated]);
    }
    let problems = Problems::default();
    let root = Field::root(node, &problems);
    check::check(&root, schema);
    rules(&root);
    match problems.into_inner() {
        problems if problems.is_empty() => deserialize(node, schema).map_err(|problem| vec![problem]),
        problems => Err(problems),
    }
}

fn deserialize<T: DeserializeOwned>(node: &Node, schema: &Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(check::present(node, schema)).map_err(|error| Problem {
        line: Some(node.line()),
        field: error.path().to_string(),
        message: error.into_inner().to_string(),
    })
}
