//! Plugin configuration and the platform's policy from files, with errors that name file, line and field.
//!
//! A plugin with a mistake is skipped and reported; the others load. [`podium_config`] defines the fields and their
//! rules; this module reads files and compares plugins with each other. `runtime` checks whether a component's
//! imports match its grants.

pub mod file;
mod order;
mod policy;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

pub(crate) use order::cycles;
use podium_config::{Document, Lines, Problem};
use podium_vocabulary::{PluginId, PluginSpec, text};
pub use policy::Policy;
pub(crate) use policy::ReadFile;
use serde::Serialize;

/// The largest configuration file, far above any that people write.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The contents of the files.
#[derive(Debug, Default)]
pub struct Configurations {
    /// Plugins in the order of the files and of the documents in them.
    pub plugins: Vec<Defined>,
    /// Mistakes because of which a plugin or a file was skipped.
    pub errors: Vec<ConfigError>,
    /// Mistakes that did not cause anything to be skipped.
    pub warnings: Vec<ConfigError>,
}

/// One mistake in one file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
pub struct ConfigError {
    /// The file, as it was named or found in a named directory.
    pub file: PathBuf,
    /// Counted from 1; `None` if the mistake is about the whole file.
    pub line: Option<u64>,
    /// The field, such as `spec.limits.memoryMiB`; empty if the mistake is about the file.
    pub field: String,
    /// The mistake, and how to correct it.
    pub message: String,
}

impl fmt::Display for ConfigError {
    /// Writes one line, whatever the file contains.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&text::path(&self.file))?;
        if let Some(line) = self.line {
            write!(formatter, ":{line}")?;
        }
        if !self.field.is_empty() {
            write!(formatter, ": {}", text::name(&self.field))?;
        }
        write!(formatter, ": {}", text::line(&self.message))
    }
}

impl ConfigError {
    fn file(file: &Path, message: String) -> Self {
        Self { file: file.to_owned(), line: None, field: String::new(), message }
    }

    fn new(file: &Path, problem: Problem) -> Self {
        let Problem { line, field, message } = problem;
        Self { file: file.to_owned(), line, field, message }
    }
}

/// A plugin and the place of its definition.
#[derive(Debug, Clone)]
pub struct Defined {
    /// The file, as it was named or found in a named directory.
    pub file: PathBuf,
    /// The lines of its fields in the file.
    pub lines: Lines,
    /// The plugin.
    pub spec: PluginSpec,
}

/// Reads files and, in directories, every `*.yaml` and `*.yml` in the order of their names. A file may contain
/// several documents.
#[must_use]
pub fn load(paths: &[PathBuf]) -> Configurations {
    load_built(paths, None)
}

/// Like [`load`], but looks for every `source.file` in the folder `components` instead of beside the configuration:
/// `podium dev` builds components into cargo's target directory.
#[must_use]
pub fn load_built(paths: &[PathBuf], components: Option<&Path>) -> Configurations {
    let mut loaded = Configurations::default();
    let mut defined = Vec::new();
    for path in paths {
        for file in files(path, &mut loaded.errors) {
            match read(&file) {
                Ok(text) => parse(&file, components, &text, &mut defined, &mut loaded.errors),
                Err(message) => loaded.errors.push(ConfigError::file(&file, message)),
            }
        }
    }
    let defined = without_duplicates(defined, &mut loaded.errors);
    loaded.plugins = order::check(defined, &mut loaded.errors, &mut loaded.warnings);
    loaded
}

/// Reads a plugin from its object of the API server. Its component is not read from a file: the path would be one of
/// the host's, and tenants create objects.
///
/// # Errors
/// Every mistake, without lines.
pub(crate) fn object(object: &serde_json::Value) -> Result<PluginSpec, Vec<Problem>> {
    if !object["spec"]["source"]["file"].is_null() {
        let message = "is not read for an object; use configMap, oci or script".to_owned();
        return Err(vec![Problem { line: None, field: "spec.source.file".to_owned(), message }]);
    }
    podium_config::plugin_object(object).map(|plugin| podium_config::spec(plugin, Path::new("")))
}

fn files(path: &Path, errors: &mut Vec<ConfigError>) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => {
            errors.push(ConfigError::file(path, format!("cannot be read: {error}")));
            return Vec::new();
        }
    };
    let yaml = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let mut files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).filter(yaml).collect();
    files.sort();
    files
}

fn read(file: &Path) -> Result<String, String> {
    read_file(file).map_err(|error| error.to_string()).and_then(utf8)
}

pub(crate) fn read_file(file: &Path) -> Result<Vec<u8>, file::FileError> {
    file::read(file, MAX_FILE_BYTES)
}

fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| format!("is not UTF-8: {error}"))
}

/// Parses the documents of one file.
fn parse(
    file: &Path,
    components: Option<&Path>,
    yaml: &str,
    defined: &mut Vec<Defined>,
    errors: &mut Vec<ConfigError>,
) {
    let documents = match podium_config::plugins(yaml) {
        Ok(documents) => documents,
        Err(problem) => {
            errors.push(ConfigError::new(file, problem));
            return;
        }
    };
    let directory = components.or(file.parent()).unwrap_or(Path::new(""));
    for Document { lines, content } in documents {
        match content {
            Ok(plugin) => {
                defined.push(Defined { file: file.to_owned(), lines, spec: podium_config::spec(plugin, directory) });
            }
            Err(problems) => errors.extend(problems.into_iter().map(|problem| ConfigError::new(file, problem))),
        }
    }
}

fn without_duplicates(defined: Vec<Defined>, errors: &mut Vec<ConfigError>) -> Vec<Defined> {
    let mut first: BTreeMap<PluginId, PathBuf> = BTreeMap::new();
    let mut kept = Vec::new();
    for plugin in defined {
        match first.get(&plugin.spec.id) {
            Some(other) => errors.push(ConfigError {
                message: format!("{} is already defined in {}; rename one", plugin.spec.id, text::path(other)),
                file: plugin.file,
                line: Some(plugin.lines.line("metadata.name")),
                field: "metadata.name".to_owned(),
            }),
            None => {
                first.insert(plugin.spec.id.clone(), plugin.file.clone());
                kept.push(plugin);
            }
        }
    }
    kept
}
