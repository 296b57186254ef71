//! Waits until the host reports that the applied versions run, and prints the result.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use kube::Client;
use podium_host::config::Defined;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Deploy, apply,
    plan::Planned,
    status::{self, Report, State},
};
use crate::{args::Format, ui};

/// How often the objects are read.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long a version has to run before it counts as deployed. The host writes a status at most every 5 s, so earlier
/// the status is of before the first run.
const SETTLED: Duration = Duration::from_secs(7);

/// The result for one plugin.
#[derive(Debug, Serialize)]
pub(super) struct Deployed {
    plugin: String,
    generation: Option<i64>,
    ok: bool,
    #[serde(flatten)]
    report: Report,
    /// File and line.
    place: Option<String>,
    next: Option<String>,
}

/// Waits for all plugins; not at all with `--no-wait`.
///
/// # Errors
/// Returns an error if an object cannot be read.
pub(super) async fn wait(
    client: &Client,
    planned: &[(Defined, Planned)],
    applied: &[Value],
    arguments: &Deploy,
) -> anyhow::Result<Vec<Deployed>> {
    let end = Instant::now() + arguments.wait;
    let mut all = Vec::new();
    for ((defined, _), applied) in planned.iter().zip(applied) {
        let (ok, report) = match arguments.no_wait {
            true => (true, status::report(applied, applied)),
            false => one(client, &defined.spec.id.to_string(), applied, end).await?,
        };
        let place = if ok { None } else { status::place(&report.message, defined) };
        let next = (!ok).then(|| next(&report, defined, arguments.wait));
        let generation = applied["metadata"]["generation"].as_i64();
        all.push(Deployed { plugin: defined.spec.id.to_string(), generation, ok, report, place, next });
    }
    Ok(all)
}

/// Waits for one plugin, and reports each change of its state.
async fn one(client: &Client, id: &str, applied: &Value, end: Instant) -> anyhow::Result<(bool, Report)> {
    let runs = |state: State| matches!(state, State::NotRun | State::Healthy | State::Failing | State::FailingBefore);
    let mut shown = None;
    // A version that ran before this command has settled.
    let mut settled = runs(status::report(applied, applied).state).then(Instant::now);
    loop {
        let object = apply::get(client, applied).await?;
        let report = status::report(&object, applied);
        let now = Instant::now();
        if runs(report.state) && settled.is_none() {
            settled = Some(now + SETTLED);
        }
        let is_settled = settled.is_some_and(|at| now >= at) || now >= end;
        match report.state {
            State::Suspended => return Ok((true, report)),
            State::NotRun | State::Healthy if is_settled => return Ok((true, report)),
            State::Refused | State::Failing => return Ok((false, report)),
            _ if now >= end => return Ok((false, report)),
            _ => {}
        }
        if shown.as_ref() != Some(&report) {
            ui::report(&format!("{id}  {}", text(&report)));
            shown = Some(report);
        }
        sleep(INTERVAL).await;
    }
}

/// Formats a state as one line.
fn text(Report { state, reason, message }: &Report) -> String {
    let state = match state {
        State::Unseen => return "waits for the host".to_owned(),
        State::Loading => "loads",
        State::Suspended => "is suspended",
        State::Refused => "is refused",
        State::NotRun => "runs, and had no Pod to run on yet",
        State::Healthy => "runs",
        State::Failing | State::FailingBefore => "fails",
    };
    match &**message {
        "" => format!("{state} ({reason})"),
        message => format!("{state} ({reason}): {message}"),
    }
}

/// Returns what to do about a plugin that does not run.
fn next(report: &Report, defined: &Defined, waited: Duration) -> String {
    let (id, file) = (&defined.spec.id, defined.file.display());
    let waited = waited.as_secs();
    match report.state {
        State::Unseen => format!(
            "no host has answered within {waited} s: see that podium-host runs with --watch-plugins and watches this \
             namespace (kubectl --namespace podium get deployment podium-host), then `podium deploy` again, or wait \
             longer with --wait"
        ),
        State::Loading => format!("it is not loaded after {waited} s; correct the cause, or wait longer with --wait"),
        State::FailingBefore => "the failure was there before this deployment, and the host removes it 10 minutes \
            after it occurred last; `podium deploy` again later"
            .to_owned(),
        State::Failing => {
            format!("`podium runs --plugin {id}` has the failed runs; correct the cause and deploy again")
        }
        _ => format!("correct {file} or the code, or the cause in the message, and deploy again"),
    }
}

/// Prints the result, and returns the exit code.
pub(super) fn print(all: &[Deployed], objects: &[&Value], arguments: &Deploy) -> anyhow::Result<ExitCode> {
    let mut lines = String::new();
    for Deployed { plugin, generation, ok, report, place, next } in all {
        let generation = generation.unwrap_or_default();
        let done = if arguments.no_wait { "is applied".to_owned() } else { text(report) };
        if *ok {
            lines += &format!("{plugin} of generation {generation} {done}\n");
            continue;
        }
        let place = place.as_ref().map_or_else(String::new, |place| format!("{place}: "));
        ui::report(&format!("error: {place}{plugin} of generation {generation} {done}"));
        next.iter().for_each(|next| ui::report(&format!("next: {next}")));
    }
    let ok = all.iter().all(|one| one.ok);
    if arguments.output == Format::Json {
        let objects: Vec<_> = objects.iter().map(|object| apply::named(object)).collect();
        lines = serde_json::to_string(&json!({ "ok": ok, "plugins": all, "objects": objects })).context("JSON")? + "\n";
    }
    ui::print(&lines)?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
