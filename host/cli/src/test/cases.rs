//! The cases of a folder.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use podium_config::{Case, Problem};
use podium_host::config::ConfigError;
use podium_vocabulary::PluginSpec;
use serde_json::Value;

use crate::offline::{self, Compiled, InputPod, Scenario};

/// The folder of the cases.
const FOLDER: &str = "tests";
/// 2026-01-01T00:00:00Z in milliseconds since the epoch.
const NOW: i64 = 1_767_225_600_000;

/// A case and its place.
#[derive(Debug, Clone)]
pub(super) struct Located {
    pub(super) file: PathBuf,
    /// The text of the file.
    pub(super) text: Arc<str>,
    /// The line where it begins.
    pub(super) line: u64,
    /// The line of `expect`, if the case has it.
    pub(super) expect: Option<u64>,
    pods_line: u64,
    pub(super) case: Case,
}

/// Reads the cases beside a configuration, of which those are returned whose name contains a text.
///
/// # Errors
/// Returns all mistakes in the files, one line each. Also returns an error if there is no such case.
pub(super) fn read(path: &Path, name: Option<&str>) -> anyhow::Result<Vec<Located>> {
    let base = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let folder = base.join(FOLDER);
    let mut files = Vec::new();
    if folder.is_dir() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
        files.retain(|file| file.extension().is_some_and(|end| end == "yaml" || end == "yml"));
        files.sort();
    }
    let mut parsed = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut problems = Vec::new();
        parsed.push((parse(&file, &text, &mut problems), problems, file));
    }
    let named: Vec<_> = parsed.iter().flat_map(|(cases, ..)| cases).flat_map(Located::pod_files).collect();
    let is_named = |file: &Path| file.canonicalize().is_ok_and(|file| named.contains(&file));
    let mut problems = Vec::new();
    let mut cases: Vec<Located> = Vec::new();
    for (of_file, mistakes, file) in parsed.into_iter().filter(|(.., file)| !is_named(file)) {
        problems.extend(mistakes);
        for case in of_file {
            if let Some(other) = cases.iter().find(|other| other.name() == case.name()) {
                let message = format!("is also the name of a case in {}; rename one", other.place());
                problems.push(mistake(&file, Problem { line: Some(case.line), field: "name".to_owned(), message }));
            }
            cases.push(case);
        }
    }
    if !path.exists() {
        bail!("{}: does not exist; name a folder with plugin.yaml", path.display());
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    if cases.is_empty() {
        bail!(
            "no case in {}: a file such as {0}/team.yaml has name, pods and expect; podium test --help has an example",
            folder.display()
        );
    }
    if let Some(name) = name {
        let all = cases.len();
        cases.retain(|case| case.name().contains(name));
        if cases.is_empty() {
            bail!("--name {name}: is in the name of none of the {all} cases");
        }
    }
    Ok(cases)
}

/// Reads the cases of a file, and reports its mistakes.
pub(super) fn parse(file: &Path, text: &str, problems: &mut Vec<String>) -> Vec<Located> {
    let documents = match podium_config::cases(text) {
        Ok(documents) => documents,
        Err(problem) => {
            problems.push(mistake(file, problem));
            return Vec::new();
        }
    };
    let text: Arc<str> = text.into();
    let mut cases = Vec::new();
    for document in documents {
        match document.content {
            Ok(case) => cases.push(Located {
                file: file.to_owned(),
                text: text.clone(),
                line: document.lines.line(""),
                expect: case.expect.as_ref().map(|_| document.lines.line("expect")),
                pods_line: document.lines.line("pods"),
                case,
            }),
            Err(found) => problems.extend(found.into_iter().map(|problem| mistake(file, problem))),
        }
    }
    cases
}

fn mistake(file: &Path, Problem { line, field, message }: Problem) -> String {
    ConfigError { file: file.to_owned(), line, field, message }.to_string()
}

impl Located {
    pub(super) fn name(&self) -> &str {
        &self.case.name
    }

    fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }

    /// Adds the place to an error, unless it has one.
    pub(super) fn error(&self, error: &anyhow::Error) -> anyhow::Error {
        let message = format!("{error:#}");
        let has_place = message.starts_with(&*self.file.to_string_lossy());
        if has_place { anyhow!("{message}") } else { anyhow!("{}: {message}", self.place()) }
    }

    /// Returns the configuration of the plugin in this case, and the scenario.
    ///
    /// # Errors
    /// Returns an error with file, line and field if a Pod is none.
    pub(super) fn scenario(&self, compiled: &Compiled) -> anyhow::Result<(PluginSpec, Scenario)> {
        let mut spec = compiled.spec.clone();
        if let Some(config) = &self.case.config {
            spec.config = Value::Object(config.clone()).to_string().into();
        }
        let pods = self.pods(compiled.namespace())?;
        let full = |name: &str| match name.contains('/') {
            true => name.to_owned(),
            false => format!("{}/{name}", compiled.namespace()),
        };
        let on: Vec<String> = self.case.on.iter().map(|name| full(name)).collect();
        if let Some(unknown) = on.iter().find(|name| pods.iter().all(|input| input.name != **name)) {
            bail!("{}: on: {unknown} is not one of the Pods of the case", self.place());
        }
        let bytes = |value: &Value| match value {
            Value::String(text) => text.clone().into_bytes(),
            other => other.to_string().into_bytes(),
        };
        let state: BTreeMap<_, _> = self.case.state.iter().map(|(key, value)| (key.clone(), bytes(value))).collect();
        let scenario = Scenario {
            pods,
            inputs: self.case.inputs.iter().map(|(id, object)| (id.clone(), object.clone())).collect(),
            on: Some(on).filter(|on| !on.is_empty()),
            now_millis: self.case.now_millis().unwrap_or(NOW),
            state,
            runs: self.case.runs,
            once: false,
            then: Duration::from_secs(self.case.then_seconds.into()),
        };
        Ok((spec, scenario))
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(name)
    }

    /// Returns the existing files with Pods that the case names.
    fn pod_files(&self) -> impl Iterator<Item = PathBuf> {
        let names = self.case.pods.iter().filter_map(Value::as_str);
        names.filter_map(|name| self.beside(name).canonicalize().ok())
    }

    fn pods(&self, namespace: &str) -> anyhow::Result<Vec<InputPod>> {
        let place = |at: usize| format!("{}:{}: pods[{at}]", self.file.display(), self.pods_line);
        let mut pods: Vec<InputPod> = Vec::new();
        for (at, pod) in self.case.pods.iter().enumerate() {
            match pod {
                Value::String(file) => {
                    pods.extend(offline::read(&self.beside(file), namespace).with_context(|| place(at))?);
                }
                pod => pods.push(InputPod::new(pod.clone(), place(at), namespace)?),
            }
        }
        Ok(pods)
    }
}
