//! `podium test`: the cases of a plugin's folder, each in a host and a cluster of its own.

mod cases;
mod diff;
mod expect;
mod update;

use std::{path::PathBuf, process::ExitCode};

use cases::Located;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::{
    args::Output,
    offline::{self, Code, Compiled, Observed},
    ui,
};

/// Run the cases of a plugin: Pods, and the writes that are expected
#[derive(Debug, Args)]
#[command(
    long_about = "Run the cases in tests/*.yaml of a plugin's folder. A case is a document of YAML: Pods, and the \
        writes, Events and result that are expected.\n\n  \
        name: a Pod without a team is marked\n  \
        pods:\n  \
        - metadata: { name: cart-0 }\n  \
        expect:\n    \
        writes:\n    \
        - set label team=unowned on shop/cart-0\n\nEach case has a host and a cluster of its own in this process, as \
        podium run has: the same sandbox, grants, limits and checks as podium-host, and virtual time. The plugin runs \
        on all Pods that it watches, and again after its own writes, until it has settled. The code is \
        compiled once.\n\n\
        Other fields of a case are on, config, inputs, now, state, runs, thenSeconds, and expect.log; podium schema \
        case describes them.",
    after_help = "Examples:\n  \
        podium test                          the cases of the plugin in this folder\n  \
        podium test hello --name unowned     only cases whose name contains this\n  \
        podium test --policy policy.yaml     under a policy of podium-host\n  \
        podium test --update                 write the observed effects into the files, to be read and committed\n  \
        podium test --output json | jq '.cases[] | select(.ok | not)'\n\n\
        Exit codes: 0 all cases passed, 1 a case failed, 2 the plugin, a case or an argument is invalid."
)]
pub struct Test {
    /// A folder with plugin.yaml and tests, or the plugin.yaml
    #[arg(default_value = ".", value_name = "DIR|plugin.yaml")]
    pub path: PathBuf,
    /// Only cases whose name contains this text
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Write the observed effects into the files of the cases
    #[arg(long)]
    pub update: bool,
    #[command(flatten)]
    pub code: Code,
    /// Format of the result on stdout
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

/// The result of a case.
#[derive(Debug, Serialize)]
struct Judged {
    name: String,
    file: PathBuf,
    line: u64,
    ok: bool,
    /// Lines that are expected and missing begin with `-`, lines that the host had besides with `+`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    diff: Vec<String>,
    /// Why the plugin did not run or settle, and the grants that its calls need.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log: Vec<String>,
}

/// Runs the cases and prints their results.
///
/// # Errors
/// Returns an error if the plugin or a case is invalid, or if a file cannot be updated.
pub(crate) fn run(arguments: &Test) -> anyhow::Result<ExitCode> {
    // The cases are read first: a mistake is reported without a build.
    let cases = cases::read(&arguments.path, arguments.name.as_deref())?;
    let compiled = Compiled::new(&arguments.path, &arguments.code)?;
    let scenarios = cases.iter().map(|case| case.scenario(&compiled)).collect::<anyhow::Result<Vec<_>>>()?;
    let bar = ui::bar(cases.len() as u64);
    let mut judged = Vec::new();
    let mut updates = Vec::new();
    for (case, (spec, scenario)) in cases.iter().zip(&scenarios) {
        bar.set_message(case.name().to_owned());
        let observed = offline::observe(&compiled, spec, scenario).map_err(|error| case.error(&error))?;
        if arguments.update && observed.unfinished.is_none() {
            updates.push((case, expect::of_runs(&observed, case)));
        }
        judged.push(judge(case, observed, arguments.update));
        bar.inc(1);
    }
    bar.finish_and_clear();
    for file in update::write(&updates)? {
        ui::report(&format!("{} updated", file.display()));
    }
    let ok = judged.iter().all(|case| case.ok);
    ui::print(&match arguments.output {
        Output::Json => format!("{}\n", json!({ "ok": ok, "cases": judged })),
        Output::Table => text(&judged),
    })?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares the expected effects of a case with the observed ones. An update accepts those.
fn judge(case: &Located, observed: Observed, is_update: bool) -> Judged {
    let mut notes = observed.not_run.iter().map(|(pod, why)| format!("not run on {pod}: {why}")).collect::<Vec<_>>();
    notes.extend(observed.unfinished.clone());
    let diff = if is_update { Vec::new() } else { expect::difference(case, &observed) };
    let ok = diff.is_empty() && observed.unfinished.is_none();
    let Located { file, line, .. } = case;
    let mut log = observed.log;
    if ok {
        notes.clear();
        log.clear();
    }
    // Also if the plugin goes on without the call.
    notes.extend(observed.lacking.iter().map(|why| format!("grants: {why}")));
    Judged { name: case.name().to_owned(), file: file.clone(), line: *line, ok, diff, notes, log }
}

fn text(judged: &[Judged]) -> String {
    let mut text = String::new();
    for Judged { name, file, line, ok, diff, notes, log } in judged {
        text += &match ok {
            true => format!("ok      {name}\n"),
            false => format!("FAILED  {name}\n        {}:{line}\n", file.display()),
        };
        diff.iter().chain(notes).for_each(|line| text += &format!("        {line}\n"));
        log.iter().for_each(|line| text += &format!("        log: {line}\n"));
    }
    let passed = judged.iter().filter(|case| case.ok).count();
    text + &format!("\n{passed} passed, {} failed\n", judged.len() - passed)
}
