//! Waits until the host reports that the applied versions run, and prints the result.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use kube::Client;
use podium_host::config::Defined;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Deploy, Plugin, apply,
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
    /// The apply has changed nothing, so the report may be an old one.
    unchanged: bool,
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
    planned: &[Plugin],
    applied: &[Value],
    arguments: &Deploy,
) -> anyhow::Result<Vec<Deployed>> {
    let end = Instant::now() + arguments.wait;
    let mut all = Vec::new();
    for ((defined, _), applied) in planned.iter().zip(applied) {
        let (ok, report) = if arguments.no_wait {
            (true, status::report(applied, applied))
        } else {
            one(client, &defined.spec.id.to_string(), applied, end).await?
        };
        let place = if ok { None } else { status::place(&report.message, defined) };
        let next = (!ok).then(|| next(&report, defined, arguments.wait));
        let generation = applied["metadata"]["generation"].as_i64();
        let unchanged = status::report(applied, applied).state != State::Unseen;
        all.push(Deployed { plugin: defined.spec.id.to_string(), generation, ok, unchanged, report, place, next });
    }
    Ok(all)
}

/// Waits for one plugin, and reports each change of its state. A read that fails is repeated until the end.
async fn one(client: &Client, id: &str, applied: &Value, end: Instant) -> anyhow::Result<(bool, Report)> {
    let runs = |state: State| matches!(state, State::NotRun | State::Healthy | State::Failing | State::FailingBefore);
    let mut shown = String::new();
    // A version that ran before this command has settled.
    let mut settled = runs(status::report(applied, applied).state).then(Instant::now);
    loop {
        let read = apply::get(client, applied).await.map(|object| status::report(&object, applied));
        let now = Instant::now();
        if read.as_ref().is_ok_and(|report| runs(report.state)) && settled.is_none() {
            settled = Some(now + SETTLED);
        }
        let is_over = now >= settled.map_or(end, |at| at.max(end));
        let line = match read {
            Ok(report) => match report.state {
                State::Suspended => return Ok((true, report)),
                State::NotRun | State::Healthy if settled.is_some_and(|at| now >= at) => return Ok((true, report)),
                State::Refused | State::Failing | State::Replaced => return Ok((false, report)),
                _ if is_over => return Ok((false, report)),
                _ => text(&report),
            },
            Err(error) if is_over || apply::is_lasting(&error) => {
                bail!("{id} is applied, and its status cannot be read: {}", apply::shown(error))
            }
            Err(error) => format!("its status cannot be read, which is tried again: {}", apply::shown(error)),
        };
        if shown != line {
            ui::report(&format!("{id}  {line}"));
            shown = line;
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
        State::Replaced => return format!("is replaced by {message}"),
    };
    match &**message {
        "" => format!("{state} ({reason})"),
        message => format!("{state} ({reason}): {message}"),
    }
}

/// Returns what to do about a plugin that does not run.
fn next(report: &Report, defined: &Defined, waited: Duration) -> String {
    let id = &defined.spec.id;
    let file = defined.file.display();
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
        State::Replaced => {
            "another client has applied it after this command; compare the files, and deploy again".to_owned()
        }
        _ => format!("correct {file} or the code, or the cause in the message, and deploy again"),
    }
}

/// Prints the result, and returns the exit code.
pub(super) fn print(all: &[Deployed], objects: &[&Value], arguments: &Deploy) -> anyhow::Result<ExitCode> {
    let mut lines = String::new();
    for Deployed { plugin, generation, ok, unchanged, report, place, next } in all {
        let generation = generation.unwrap_or_default();
        let done = match unchanged {
            _ if arguments.no_wait => "is applied".to_owned(),
            true => format!("is unchanged; the host reported that it {}", text(report)),
            false => text(report),
        };
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
