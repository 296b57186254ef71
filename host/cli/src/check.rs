//! `podium check`: what the host would say about configurations and components, by the host's own reader and checks. It
//! builds nothing, compiles nothing and runs nothing.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use podium_host::config::{self, ConfigError, Defined, Policy};
use podium_vocabulary::{Grant, Language, PluginSpec, text};
use serde::Serialize;

use crate::{args, build, plugin, runners::Checker, script, ui};

/// The field of the account.
const ACCOUNT: &str = "spec.serviceAccountName";

/// The findings, as `--output json` prints them.
#[derive(Debug, Default, Serialize)]
struct Report {
    ok: bool,
    /// All errors in one text, as for a command that fails at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    plugins: Vec<Checked>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
}

/// A plugin whose configuration is valid.
#[derive(Debug, Serialize)]
struct Checked {
    plugin: String,
    file: PathBuf,
    /// `None` if the crate is not built.
    component: Option<PathBuf>,
    bytes: Option<u64>,
    /// `None` if the component was not read, or if the host would refuse it.
    imports: Option<Vec<build::Import>>,
    #[serde(skip)]
    script: bool,
    /// The component is in a registry or a ConfigMap.
    #[serde(skip)]
    elsewhere: bool,
    /// The configuration is such that the host does not run the plugin.
    suspended: bool,
    ok: bool,
}

/// Checks and prints.
///
/// # Errors
/// Returns an error if there is nothing to check, or `--component` is not a file. Mistakes in a plugin are not errors
/// of this function: they are printed, and the exit code is 1.
pub fn run(arguments: &args::Check) -> anyhow::Result<ExitCode> {
    let files = files(&arguments.paths)?;
    if let Some(component) = arguments.component.as_ref().filter(|component| !component.is_file()) {
        bail!("--component {}: not a file", component.display());
    }
    let policy = arguments.policy.as_deref().map(Policy::read).transpose();
    let report = check(&files, arguments.component.as_deref(), policy, arguments.runners.runners.as_deref())?;
    for (level, mistakes) in [("warning", &report.warnings), ("error", &report.errors)] {
        for mistake in mistakes {
            ui::report(&format!("{level}: {mistake}"));
        }
    }
    match arguments.output {
        args::Output::Json => ui::print(&format!("{}\n", serde_json::to_string(&report)?))?,
        args::Output::Table => ui::print(&table(&report))?,
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks a configuration file that is deployed, which fills in a missing account, with the component that was built
/// for it, if one was. Prints warnings.
///
/// # Errors
/// Returns every mistake, one line each.
pub(crate) fn accepted(file: &Path, component: Option<&Path>, runners: Option<&Path>) -> anyhow::Result<()> {
    let report = check(&[file.to_owned()], component, Ok(None), runners)?;
    let others = report.warnings.iter().filter(|warning| warning.field != ACCOUNT);
    others.for_each(|warning| ui::report(&format!("warning: {warning}")));
    report.error.map_or(Ok(()), |error| bail!("{error}"))
}

/// Returns the configuration files that the paths mean. In a folder these are its plugin.yaml, or else the files that
/// the host would read there and the plugin.yaml of every folder in it.
///
/// # Errors
/// Returns an error if a folder cannot be read or has no configuration.
pub(crate) fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let own = path.join(plugin::FILE);
        if path.file_name().is_some_and(|name| Language::ALL.iter().any(|language| name == language.file())) {
            files.push(path.with_file_name(plugin::FILE));
        } else if !path.is_dir() {
            files.push(path.clone());
        } else if own.is_file() {
            files.push(own);
        } else {
            let before = files.len();
            let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
            let mut entries = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
            entries.sort();
            for entry in entries {
                let below = entry.join(plugin::FILE);
                let yaml = entry.extension().is_some_and(|end| end == "yaml" || end == "yml");
                if below.is_file() {
                    files.push(below);
                } else if yaml && entry.is_file() {
                    files.push(entry);
                }
            }
            if files.len() == before {
                bail!(
                    "no plugin at {}: neither it nor its folders have a {}, and it has no other *.yaml; name a file, \
                     or create a plugin by `podium new NAME`",
                    path.display(),
                    plugin::FILE
                );
            }
        }
    }
    files.dedup();
    Ok(files)
}

/// With a policy that has mistakes no plugin is checked: the host would load none.
fn check(
    files: &[PathBuf],
    component: Option<&Path>,
    policy: Result<Option<Policy>, Vec<ConfigError>>,
    runners: Option<&Path>,
) -> anyhow::Result<Report> {
    // All files in one go, so that duplicates and cycles over several files are found.
    let config::Configurations { plugins, errors, warnings } = config::load(files);
    let (policy, of_policy) = policy.map_or_else(|errors| (None, errors), |policy| (policy, Vec::new()));
    let usable = of_policy.is_empty();
    let mut report =
        Report { errors: of_policy.into_iter().map(of_flag).chain(errors).collect(), warnings, ..Report::default() };
    if plugins.is_empty() && report.errors.is_empty() {
        let message = "contains no plugin; `podium new NAME` writes one".to_owned();
        let none = |file: &PathBuf| ConfigError {
            file: file.clone(),
            line: None,
            field: String::new(),
            message: message.clone(),
        };
        report.errors.extend(files.iter().map(none));
    }
    let plugins = if usable { plugins } else { Vec::new() };
    let scripts = plugins.iter().any(|plugin| plugin.spec.language.is_some());
    let checker = if scripts { Checker::new(runners)? } else { None };
    for plugin in script::complete(plugins) {
        let copy = script::outdated(&plugin);
        let forbidden = policy.as_ref().map_or_else(Vec::new, |policy| plugin::forbidden(policy, &plugin));
        let Defined { file, lines, spec } = plugin;
        let found = component.map(Path::to_owned).or_else(|| built(&file, &spec));
        let imports = match &found {
            None if spec.language.is_some() => {
                let checked = checker.as_ref().map_or(Ok(None), |checker| checker.check(&spec));
                checked.map(|known| known.map(|()| Vec::new()))
            }
            Some(component) => plugin::check(&spec, component).map(Some),
            None if is_crate(&file) || spec.suspend || spec.source.file().is_none() => Ok(None),
            None => Err(anyhow::anyhow!("{} is not a file; build the component with `podium build`", spec.source)),
        };
        let ok = imports.is_ok() && forbidden.is_empty();
        let of_plugin = |field: String, message: String| {
            let message = format!("of plugin {}: {message}", spec.id);
            ConfigError { file: file.clone(), line: Some(lines.line(&field)), field, message }
        };
        // A plugin with a file is no object.
        if spec.impersonate.is_none() && spec.source.file().is_none() {
            let message = "is missing: the admission policies of the chart refuse the object; name the ServiceAccount \
                           that its writes are sent as";
            report.warnings.push(of_plugin(ACCOUNT.to_owned(), message.to_owned()));
        }
        report.errors.extend(forbidden);
        let doubtful = singular(&spec).chain(copy);
        report.warnings.extend(doubtful.map(|(field, message)| of_plugin(field, message)));
        let imports = imports.unwrap_or_else(|error| {
            let no_file = found.is_none() && spec.language.is_none();
            let field = if no_file { "spec.source.file".to_owned() } else { String::new() };
            let message = if no_file { format!("{error:#}") } else { format!("plugin {}: {error:#}", spec.id) };
            let line = (!field.is_empty()).then(|| lines.line(&field));
            report.errors.push(ConfigError { file: file.clone(), line, field, message });
            None
        });
        report.plugins.push(Checked {
            plugin: spec.id.to_string(),
            file,
            bytes: found.as_ref().and_then(|file| file.metadata().ok()).map(|metadata| metadata.len()),
            component: found,
            imports: imports.map(build::shown),
            script: spec.language.is_some(),
            elsewhere: spec.source.file().is_none(),
            suspended: spec.suspend,
            ok,
        });
    }
    report.ok = report.errors.is_empty();
    if !report.ok {
        report.error = Some(report.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }
    Ok(report)
}

/// Returns the field of each grant whose resource is the kind in lower case, with a message. The API server has
/// plurals, and refuses such a request when the plugin first sends one; a custom resource may have a plural like that.
fn singular(spec: &PluginSpec) -> impl Iterator<Item = (String, String)> {
    let write = &spec.grants.write;
    let lists = [
        (Grant::ReadObjects, &spec.grants.read_objects),
        (Grant::Objects, &write.objects),
        (Grant::Scale, &write.scale),
    ];
    let objects = lists.into_iter().flat_map(|(list, objects)| {
        objects.iter().enumerate().map(move |(at, of)| (format!("spec.grants.{}[{at}].resource", list.field()), of))
    });
    objects.filter(|(_, of)| of.resource == of.kind.to_lowercase() && !of.resource.ends_with('s')).map(|(field, of)| {
        let message = format!(
            "{} is the singular of {}, and a resource is a plural, as kubectl api-resources prints; did you mean {}?",
            of.resource,
            of.kind,
            text::plural(&of.kind)
        );
        (field, message)
    })
}

/// A policy that cannot be read at all is a mistake of the flag that names it.
fn of_flag(error: ConfigError) -> ConfigError {
    let message = if error.field.is_empty() { format!("--policy: {}", error.message) } else { error.message };
    ConfigError { message, ..error }
}

/// Returns the component beside the configuration, or else the latest build of the crate beside it.
pub(crate) fn built(file: &Path, spec: &PluginSpec) -> Option<PathBuf> {
    let component = spec.source.file()?;
    if component.is_file() {
        return Some(component.to_owned());
    }
    let directory = file.parent().filter(|_| is_crate(file))?;
    let target = build::target_directory(if directory == Path::new("") { Path::new(".") } else { directory }).ok()?;
    Some(target.join("podium").join(component.file_name()?)).filter(|component| component.is_file())
}

fn is_crate(file: &Path) -> bool {
    file.with_file_name("Cargo.toml").is_file()
}

/// The table of plugins; empty where no configuration is valid.
fn table(report: &Report) -> String {
    let rows = report.plugins.iter().map(|checked| {
        let component = checked.component.as_ref().map_or("not built".to_owned(), |path| path.display().to_string());
        let result = match (checked.ok, &checked.imports) {
            (true, Some(_)) => "ok",
            (true, None) if checked.script => "configuration ok, script not checked: no runner, use --runners DIR",
            (true, None) if checked.elsewhere => "configuration ok, imports not checked: use --component FILE",
            (true, None) => "configuration ok, imports not checked: run podium build",
            (false, _) => "refused",
        };
        let suspended = if checked.suspended { "; suspended: the host does not run it" } else { "" };
        let size = checked.bytes.map_or("-".to_owned(), ui::size);
        [checked.plugin.clone(), checked.file.display().to_string(), component, size, format!("{result}{suspended}")]
    });
    if report.plugins.is_empty() {
        return String::new();
    }
    ui::table(["PLUGIN", "CONFIGURATION", "COMPONENT", "SIZE", "RESULT"], rows) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLUGIN: &str = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\n\
        metadata: { name: a, namespace: shop }\nspec: { source: { file: a.wasm }, limits: { writes: 100 } }\n";
    const POLICY: &str =
        "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  defaults: { limits: { writes: 50 } }\n";

    /// The report on the plugin of a crate that is not built.
    fn report(policy: Option<&str>) -> Report {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("Cargo.toml"), "").unwrap();
        std::fs::write(path("plugin.yaml"), PLUGIN).unwrap();
        let policy = policy.map(|text| {
            std::fs::write(path("policy.yaml"), text).unwrap();
            Policy::read(&path("policy.yaml"))
        });
        check(&[path("plugin.yaml")], None, policy.transpose(), None).unwrap()
    }

    #[test]
    fn a_plugin_beyond_the_policy_is_refused_with_file_and_field() {
        assert!(report(None).ok);
        assert!(report(Some(&POLICY.replace("50", "100"))).ok);
        let refused = report(Some(POLICY));
        assert!(!refused.ok && !refused.plugins[0].ok && table(&refused).contains("refused"));
        let [mistake] = &refused.errors[..] else { unreachable!("{:?}", refused.errors) };
        assert!(mistake.file.ends_with("plugin.yaml") && mistake.field == "spec.limits.writes", "{mistake:?}");
        assert_eq!(mistake.line, Some(4), "{mistake:?}");
        assert!(mistake.message.contains("policy.yaml: spec.defaults.limits.writes"), "{mistake:?}");
        assert!(mistake.message.starts_with("of plugin "), "a file may have several: {mistake:?}");
    }

    #[test]
    fn an_object_without_an_account_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugin.yaml");
        let warnings = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let report = check(std::slice::from_ref(&file), None, Ok(None), None).unwrap();
            assert!(report.ok, "a warning only: {:?}", report.errors);
            report.warnings.iter().map(|warning| (warning.line, warning.field.clone())).collect::<Vec<_>>()
        };
        let object = PLUGIN.replace("file: a.wasm", "oci: { image: 'a.example/a:1' }");
        assert_eq!(warnings(&object), [(Some(4), "spec.serviceAccountName".to_owned())]);
        let named = object.replace("spec: {", "spec: { serviceAccountName: a,");
        assert_eq!(warnings(&named), []);
        let sha256 = "0".repeat(64);
        let map = PLUGIN.replace("file: a.wasm", &format!("configMap: {{ name: a, key: a, sha256: '{sha256}' }}"));
        assert_eq!(warnings(&map).len(), 1);
        let crate_file = report(None);
        assert!(crate_file.warnings.is_empty(), "{:?}", crate_file.warnings);
    }

    #[test]
    fn a_resource_in_the_singular_is_a_warning_with_the_plural() {
        let warnings = |kind: &str, resource: &str| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("Cargo.toml"), "").unwrap();
            let file = folder.path().join("plugin.yaml");
            let grant = format!("{{ apiVersion: example.com/v1, kind: {kind}, resource: {resource} }}");
            let grants = format!("limits: {{ writes: 100 }}, grants: {{ write: {{ objects: [{grant}] }} }}");
            std::fs::write(&file, PLUGIN.replace("limits: { writes: 100 }", &grants)).unwrap();
            let report = check(&[file], None, Ok(None), None).unwrap();
            assert!(report.ok, "{:?}", report.errors);
            report.warnings
        };
        for (kind, resource, plural) in
            [("ConfigMap", "configmap", "configmaps?"), ("NetworkPolicy", "networkpolicy", "networkpolicies?")]
        {
            let [warning] = &warnings(kind, resource)[..] else { unreachable!("no warning") };
            assert_eq!(warning.field, "spec.grants.write.objects[0].resource");
            assert!(warning.line == Some(4) && warning.message.ends_with(plural), "{warning:?}");
        }
        for (kind, resource) in [("ConfigMap", "configmaps"), ("Endpoints", "endpoints"), ("Ingress", "ingresses")] {
            assert!(warnings(kind, resource).is_empty(), "{resource}");
        }
    }

    #[test]
    fn a_suspended_plugin_is_named_as_such() {
        assert!(!report(None).plugins[0].suspended);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugin.yaml");
        std::fs::write(&file, PLUGIN.replace("spec: {", "spec: { suspend: true,")).unwrap();
        let report = check(&[file], None, Ok(None), None).unwrap();
        assert!(report.ok && report.plugins[0].suspended, "the host does not need the component: {:?}", report.errors);
        assert!(table(&report).contains("suspended: the host does not run it"), "{}", table(&report));
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_a_mistake_of_the_flag() {
        let folder = tempfile::tempdir().unwrap();
        let policy = Policy::read(&folder.path().join("none.yaml")).map(Some);
        let report = check(&[], None, policy, None).unwrap();
        let [mistake] = &report.errors[..] else { unreachable!("{:?}", report.errors) };
        assert!(mistake.message.starts_with("--policy: ") && mistake.file.ends_with("none.yaml"), "{mistake:?}");
    }

    #[test]
    fn a_file_without_a_plugin_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugin.yaml");
        for text in ["", "# nothing\n", "---\n", "null\n"] {
            std::fs::write(&file, text).unwrap();
            let report = check(std::slice::from_ref(&file), None, Ok(None), None).unwrap();
            assert!(!report.ok && report.errors[0].message.starts_with("contains no plugin"), "{text:?}");
        }
    }

    #[test]
    fn every_mistake_of_a_policy_is_an_error_of_its_own() {
        let refused = report(Some(&POLICY.replace("writes: 50", "writes: -1, reads: 1")));
        let fields: Vec<_> = refused.errors.iter().map(|mistake| &*mistake.field).collect();
        assert_eq!(fields, ["spec.defaults.limits.reads", "spec.defaults.limits.writes"]);
        assert!(!refused.ok && refused.errors.iter().all(|mistake| mistake.file.ends_with("policy.yaml")));
    }
}
