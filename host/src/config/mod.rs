//! Plugin configuration and the platform's policy from files, with errors that name file, line and field.
//!
//! A plugin that is wrong is left out and reported; the others load. The fields and their rules are those of
//! [`podium_config`]; here are files, and how plugins go with each other. Whether a component's imports fit its grants
//! is checked by `runtime`.

pub mod file;
mod order;
mod plugin;
mod policy;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use podium_config::{Document, Lines, Problem};
use podium_pods::model::{PluginId, PluginSpec, text};
pub use policy::Policy;

/// Far above any configuration that people write.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What the files say.
#[derive(Debug, Default)]
pub struct Loaded {
    /// In the order of the files and of the documents in them.
    pub plugins: Vec<Defined>,
    /// Each left a plugin or a file out.
    pub errors: Vec<ConfigError>,
    /// These left nothing out.
    pub warnings: Vec<ConfigError>,
}

/// One thing that is wrong in one file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file, as it was named or found in a named directory.
    pub file: PathBuf,
    /// Counted from 1; `None` if the mistake is about the whole file.
    pub line: Option<u64>,
    /// Such as `spec.limits.memoryMiB`; empty where it is about the file.
    pub field: String,
    /// The mistake, and how to correct it.
    pub message: String,
}

impl fmt::Display for ConfigError {
    /// One line, whatever the file contains.
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

/// A plugin, and where its file defines it.
#[derive(Debug, Clone)]
pub struct Defined {
    /// The file, as it was named or found in a named directory.
    pub file: PathBuf,
    /// Where its fields are in the file.
    pub lines: Lines,
    /// The plugin.
    pub spec: PluginSpec,
}

/// Reads files and, of directories, every `*.yaml` and `*.yml` in the order of their names. A file may hold several
/// documents.
#[must_use]
pub fn load(paths: &[PathBuf]) -> Loaded {
    load_built(paths, None)
}

/// As [`load`], with every `source.file` looked for in the folder `components`, not beside its configuration: where
/// plugins are built and run in one go, components are with what cargo makes.
#[must_use]
pub fn load_built(paths: &[PathBuf], components: Option<&Path>) -> Loaded {
    let mut loaded = Loaded::default();
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
    let bytes = file::read(file, MAX_FILE_BYTES).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| format!("is not UTF-8: {error}"))
}

/// One file's documents.
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
                defined.push(Defined { file: file.to_owned(), lines, spec: plugin::spec(plugin, directory) });
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
                line: Some(plugin.lines.of("metadata.name")),
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
