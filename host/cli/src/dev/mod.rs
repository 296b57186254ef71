//! `podium dev`: a cluster, the host, and plugins that are rebuilt and reloaded when their source is saved.

mod changes;
mod crates;
mod environment;
mod kubeconfig;
mod report;
mod swap;

use std::{convert::Infallible, process::ExitCode};

use anyhow::Context;
use changes::Changes;
use crates::Crate;
use environment::Environment;
use podium_host::app::{self, App};
use podium_vocabulary::Language;
use swap::{Running, swap};

use crate::{args, compilation, plugin, runners, ui};

/// Runs until Ctrl-C.
///
/// # Errors
/// Returns an error if there is no crate, or if the cluster or the host does not start. A plugin that does not build
/// or load is reported, and retried at the next save.
pub async fn run(arguments: args::Dev, now_millis: u64) -> anyhow::Result<ExitCode> {
    ui::log(&arguments.log)?;
    let crates = crates::find(&arguments.paths)?;
    // Started before the first build, so that a save during the build is not missed.
    let mut changes = Changes::new(&crates)?;
    let languages: Vec<_> =
        Language::ALL.into_iter().filter(|language| crates.iter().any(|one| one.script() == Some(*language))).collect();
    let named = arguments.runners.runners.as_deref();
    let runners = (!languages.is_empty())
        .then(|| runners::directory(named, &languages, arguments.toolchain.install_targets))
        .transpose()?;
    let policy = arguments.policy.as_deref().map(plugin::policy).transpose()?;
    let environment = Environment::start(&arguments, &crates, now_millis).await?;
    let mut app = App::start(app::Options {
        namespace: arguments.namespace.clone(),
        workers: ui::WORKERS,
        policy,
        compilation: compilation::compilation()?,
        runners,
        ..app::Options::new(environment.client.clone(), now_millis, now_millis)
    })
    .await?;
    let ended = tokio::select! {
        biased;
        stopped = ui::stopped() => stopped,
        Err(error) = work(&mut app, &environment, &crates, &mut changes) => Err(error),
    };
    app.shutdown().await;
    ended.map(|()| ExitCode::SUCCESS)
}

/// Builds and loads all plugins, then each one that is saved. Returns only with an error.
async fn work(
    app: &mut App,
    environment: &Environment,
    crates: &[Crate],
    changes: &mut Changes,
) -> anyhow::Result<Infallible> {
    let mut all: Vec<_> = crates.iter().map(|_| Running::default()).collect();
    let mut report = report::Report::default();
    for (one, running) in crates.iter().zip(&mut all) {
        swap(app, environment, one, running).await;
    }
    environment.print_next_step(&environment.only.clone().unwrap_or_else(|| namespace_of(&all))).await;
    loop {
        let mut next = std::pin::pin!(changes.next(crates));
        let changed = loop {
            tokio::select! {
                biased;
                error = app.failed() => return Err(error),
                changed = &mut next => break changed.context("watching files failed")?,
                () = tokio::time::sleep(report::INTERVAL) => report.print(app),
            }
        };
        for index in changed {
            if let (Some(one), Some(running)) = (crates.get(index), all.get_mut(index)) {
                swap(app, environment, one, running).await;
            }
        }
    }
}

/// Returns the namespace of the first plugin that has one, for the printed example.
fn namespace_of(all: &[Running]) -> String {
    let ids = all.iter().flat_map(|running| running.plugins.keys());
    ids.filter_map(|id| id.namespace.as_deref()).next().unwrap_or("default").to_owned()
}
