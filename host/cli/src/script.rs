//! Plugins that are scripts: the file beside plugin.yaml, and its copy in plugin.yaml.

use std::path::Path;

use anyhow::{Context, bail};
use podium_config::MAX_SCRIPT_BYTES;
use podium_host::config::Defined;
use podium_vocabulary::{Language, Source};

use crate::{build::write_whole, plugin, runners::Checker, ui};

/// Returns the language of the folder's script; `None` for a folder with a crate or without a script.
pub(crate) fn language_in(directory: &Path) -> Option<Language> {
    let is_script = |language: &Language| directory.join(language.file()).is_file();
    Language::ALL.into_iter().find(is_script).filter(|_| !directory.join("Cargo.toml").is_file())
}

/// Copies the script of a folder into its plugin.yaml, which `kubectl apply` reads. Writes nothing if it is there, or
/// if it is too large for a configuration: then [`complete`] reads it.
///
/// # Errors
/// Returns an error if plugin.yaml has no place for the script or another language, or cannot be read or written, or if
/// YAML cannot contain the script.
pub(crate) fn embed(directory: &Path, language: Language) -> anyhow::Result<()> {
    let Some(after) = embedded(directory, language)? else { return Ok(()) };
    let config = directory.join(plugin::FILE);
    write_whole(&config, after.as_bytes()).with_context(|| format!("cannot write {}", config.display()))
}

/// Returns the text of plugin.yaml that [`embed`] writes; `None` if it writes nothing.
///
/// # Errors
/// See [`embed`].
pub(crate) fn embedded(directory: &Path, language: Language) -> anyhow::Result<Option<String>> {
    let name = language.file();
    let [script, config] = [name, plugin::FILE].map(|file| directory.join(file));
    let read = |file: &Path| std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let before = read(&config)?;
    let script = read(&script)?;
    if script.len() > MAX_SCRIPT_BYTES {
        return Ok(None);
    }
    let after = with_script(&before, &script).with_context(|| {
        format!(
            "{}: there is no line `{PLACE}` for a copy of {name}; add\n\n  source:\n    script:\n      \
             language: {}\n      {PLACE}\n",
            config.display(),
            language.name()
        )
    })?;
    if after == before {
        return Ok(None);
    }
    match language_of(&after, &script) {
        Some(named) if named == language.name() => {}
        Some(named) => bail!(
            "{}: spec.source.script.language is {named}, and {name} is {}; write language: {}",
            config.display(),
            language.title(),
            language.name()
        ),
        None => bail!("{name} has characters that YAML does not permit in a text, such as control characters"),
    }
    Ok(Some(after))
}

/// The line before the copy, which is indented by two spaces more.
const PLACE: &str = "inline: |2";

/// Returns the YAML with the script as the block below its place; `None` if there is no such line.
fn with_script(yaml: &str, script: &str) -> Option<String> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<_> = yaml.lines().collect();
    let at = lines.iter().position(|line| line.trim() == PLACE)?;
    let own = indentation(lines[at]);
    let rest = lines[at + 1..].iter().position(|line| !line.trim().is_empty() && indentation(line) <= own);
    let rest = rest.map_or(&[][..], |after| &lines[at + 1 + after..]);
    let script = script.trim_end_matches(['\n', '\r']).lines().map(|line| match line {
        "" => String::new(),
        line => format!("{:own$}  {line}", ""),
    });
    let whole = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
    let lines = whole(&lines[..=at]).into_iter().chain(script).chain(whole(rest));
    Some(lines.map(|line| line + "\n").collect())
}

/// Returns the language that a document of the YAML names for this script; `None` if none has the script.
fn language_of(yaml: &str, script: &str) -> Option<String> {
    let documents = serde_saphyr::from_multiple::<serde_json::Value>(yaml).unwrap_or_default();
    let mut scripts = documents.iter().map(|document| &document["spec"]["source"]["script"]);
    let own = scripts.find(|own| own["inline"].as_str().is_some_and(|inline| same(inline, script)))?;
    Some(own["language"].as_str().unwrap_or("not set").to_owned())
}

/// Compares scripts as YAML keeps them: without the difference of line ends, and of lines after the last one.
fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches(['\n', '\r']).lines().eq(other.trim_end_matches(['\n', '\r']).lines())
}

/// Returns true for the only script of a plugin.yaml, which is the copy of the script beside it. In a file with several
/// scripts none is the copy. `plugins` has all plugins of the file.
pub(crate) fn is_copy(defined: &Defined, plugins: &[Defined]) -> bool {
    let is_inline = |of: &Defined| of.file.ends_with(plugin::FILE) && matches!(of.spec.source, Source::Inline(_));
    let in_file = |of: &&Defined| is_inline(of) && of.file == defined.file;
    is_inline(defined) && plugins.iter().filter(in_file).count() == 1
}

/// Replaces the copy of a script in plugin.yaml with the script beside it if that is too large for a copy.
pub(crate) fn complete(mut plugins: Vec<Defined>) -> Vec<Defined> {
    let copies: Vec<_> = plugins.iter().map(|defined| is_copy(defined, &plugins)).collect();
    for (defined, _) in plugins.iter_mut().zip(copies).filter(|(_, is_copy)| *is_copy) {
        let Some(language) = defined.spec.language else { continue };
        let file = defined.file.with_file_name(language.file());
        let large = file.metadata().is_ok_and(|metadata| metadata.len() > MAX_SCRIPT_BYTES as u64);
        if large
            && let Source::Inline(inline) = &mut defined.spec.source
            && let Ok(script) = std::fs::read_to_string(file)
        {
            *inline = script.into();
        }
    }
    plugins
}

/// Returns a field and a warning about it if the configuration is not about the present script beside it.
pub(crate) fn outdated(defined: &Defined) -> Option<(String, String)> {
    let Source::Inline(inline) = &defined.spec.source else { return None };
    let file = defined.spec.language?.file();
    let script = std::fs::read_to_string(defined.file.with_file_name(file)).ok()?;
    let message = || format!("is not a copy of {file}; podium build copies it");
    (!same(&script, inline)).then(|| ("spec.source.script.inline".to_owned(), message()))
}

/// Copies the script into plugin.yaml, and checks both.
///
/// # Errors
/// Returns an error if the host would refuse the plugin.
pub(crate) fn build(directory: &Path, language: Language, runners: Option<&Path>) -> anyhow::Result<()> {
    embed(directory, language)?;
    let config = directory.join(plugin::FILE);
    let plugins = plugin::read(std::slice::from_ref(&config), None)?;
    if let Some(checker) = Checker::new(runners)? {
        plugins.iter().try_for_each(|plugin| checker.check(&plugin.spec).map(drop))?;
    }
    ui::print(&format!(
        "{} and {} are ready; deploy them with\n\n    podium deploy {}\n",
        config.display(),
        language.file(),
        directory.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_replaces_the_block_and_nothing_else() {
        let head = "spec:\n  source:\n    script:\n      inline: |2\n";
        let yaml = format!("{head}        old\n\n          older\n  watch: {{}}\n");
        // Spaces at the start and at the end of a line are in the text of a template literal.
        let script = "  a {  \n\n  `\n   \n\tb`\n}\n\n";
        let new = with_script(&yaml, script).unwrap();
        let block = "          a {  \n\n          `\n           \n        \tb`\n        }\n";
        assert_eq!(new, format!("{head}{block}  watch: {{}}\n"));
        assert!(language_of(&new, script).is_some(), "{new}");
        assert_eq!(language_of(&new, "a {"), None, "{new}");
        assert_eq!(with_script(&new, script).as_deref(), Some(&*new), "the second copy changes nothing");
        assert_eq!(with_script("inline: |2\n", "x").as_deref(), Some("inline: |2\n  x\n"), "at the end of the file");
        assert_eq!(with_script("inline: x\n", "x"), None);
    }

    #[test]
    fn a_script_of_another_language_than_plugin_yaml_names_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let yaml = "spec:\n  source:\n    script:\n      language: javascript\n      inline: |2\n";
        std::fs::write(folder.path().join(plugin::FILE), yaml).unwrap();
        std::fs::write(folder.path().join("plugin.py"), "x = 1\n").unwrap();
        assert_eq!(language_in(folder.path()), Some(Language::Python));
        let error = embed(folder.path(), Language::Python).unwrap_err().to_string();
        let expected = "language is javascript, and plugin.py is Python; write language: python";
        assert!(error.ends_with(expected), "{error}");
        assert_eq!(std::fs::read_to_string(folder.path().join(plugin::FILE)).unwrap(), yaml);
    }
}
