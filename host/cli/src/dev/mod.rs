//! `podium dev`: a cluster, the host, and plugins that are built again and swapped when their source is saved.

mod changes;
mod crates;
mod suggestion;

use std::{collections::BTreeSet, convert::Infallible, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use kube::{Client, config::Kubeconfig};
use podium_host::{
    app::{self, App},
    model::{PluginId, PluginSpec},
    shape::Prune,
};

use tokio::time::Instant;

use crate::{
    args,
    build::{self, Built},
    cluster::{self, Local},
    plugin, ui,
};
use changes::Changes;
use crates::Crate;

/// Runs until Ctrl-C.
///
/// # Errors
/// When there is no crate, or the cluster or the host does not start. A plugin that does not build or load is told of,
/// and waited for.
pub async fn run(arguments: args::Dev, now_millis: u64) -> anyhow::Result<ExitCode> {
    ui::log(&arguments.log)?;
    let crates = crates::find(&arguments.paths)?;
    // Before the first build, so that a save during it is not missed.
    let mut changes = Changes::of(&crates)?;
    let stage = Stage::set(&arguments, &crates, now_millis).await?;
    let mut app = App::start(app::Options {
        client: stage.client.clone(),
        watch_client: stage.client.clone(),
        namespace: arguments.namespace.clone(),
        workers: ui::WORKERS,
        bind_address: None,
        journal: None,
        checkpoint: None,
        prune: Prune::default(),
        seed: now_millis,
        now_millis,
    })
    .await?;
    let ended = tokio::select! {
        biased;
        stopped = ui::stopped() => stopped,
        Err(error) = work(&mut app, &stage, &crates, &mut changes) => Err(error),
    };
    app.shutdown().await;
    ended.map(|()| ExitCode::SUCCESS)
}

/// Builds and loads everything, then what is saved. Ends with an error only.
async fn work(app: &mut App, stage: &Stage, crates: &[Crate], changes: &mut Changes) -> anyhow::Result<Infallible> {
    let mut loaded = vec![BTreeSet::new(); crates.len()];
    for (one, ids) in crates.iter().zip(&mut loaded) {
        swap(app, one, ids).await;
    }
    stage.tell();
    loop {
        let changed = tokio::select! {
            biased;
            error = app.failed() => return Err(error),
            changed = changes.next(crates) => changed.context("the files cannot be watched any more")?,
        };
        for index in changed {
            if let (Some(one), Some(ids)) = (crates.get(index), loaded.get_mut(index)) {
                swap(app, one, ids).await;
            }
        }
    }
}

/// The cluster that plugins work on.
struct Stage {
    client: Client,
    kubeconfig: PathBuf,
    /// None where the cluster is somebody else's.
    local: Option<Local>,
}

impl Stage {
    async fn set(arguments: &args::Dev, crates: &[Crate], now_millis: u64) -> anyhow::Result<Self> {
        if let Some(path) = &arguments.kubeconfig {
            let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("cannot use {}", path.display()))?;
            return Ok(Self { client: cluster::client(kubeconfig).await?, kubeconfig: path.clone(), local: None });
        }
        let first = crates.first().context("there is no crate")?;
        // At the same place each time, so that a KUBECONFIG in another terminal outlives a restart.
        let directory = build::target_directory(&first.directory)?.join("podium");
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let options = podium_devcluster::Options {
            seed: now_millis,
            nodes: arguments.nodes,
            start_millis: i64::try_from(now_millis)?,
            ..<_>::default()
        };
        let local = Local::start(options).await?;
        let kubeconfig = local.write_kubeconfig(&directory)?;
        Ok(Self { client: local.client().await?, kubeconfig, local: Some(local) })
    }

    /// What an author does next.
    fn tell(&self) {
        let whose = if self.local.is_some() { "A cluster of its own, gone at the end" } else { "Your cluster" };
        eprintln!(
            "\n{whose}. In another terminal:\n\n    export KUBECONFIG={}\n    kubectl run web --image nginx:1.29\n    \
             kubectl get pods --show-labels --watch\n\nA save builds the plugin again. Ctrl-C ends.\n",
            self.kubeconfig.display()
        );
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.local.is_some() {
            // A file that is left points at nothing, and the next start replaces it.
            let _ = std::fs::remove_file(&self.kubeconfig);
        }
    }
}

/// Builds one crate and lets the host run what came of it; `ids` is what the host ran of this crate. On an error the
/// old plugin goes on.
async fn swap(app: &App, one: &Crate, ids: &mut BTreeSet<PluginId>) {
    let began = Instant::now();
    let (built, specs) = match prepare(one).await {
        Ok(prepared) => prepared,
        Err(error) => {
            ui::error(&error);
            eprintln!("{} waits for the next save", one.directory.display());
            return;
        }
    };
    let wanted: BTreeSet<_> = specs.iter().map(|(_, spec)| spec.id.clone()).collect();
    for id in ids.difference(&wanted).cloned().collect::<Vec<_>>() {
        app.unload(&id).await;
        ids.remove(&id);
        eprintln!("{id}  unloaded");
    }
    for (_, spec) in specs {
        let id = spec.id.clone();
        match app.load(spec).await {
            Ok(()) => {
                let done = if ids.contains(&id) { "swapped" } else { "loaded" };
                eprintln!("{id}  {done}  {}  {:.1} s", ui::size(built.bytes), began.elapsed().as_secs_f64());
                ids.insert(id);
            }
            Err(error) => ui::error(&error.context(format!("plugin {id}"))),
        }
    }
}

async fn prepare(one: &Crate) -> anyhow::Result<(Built, Vec<(PathBuf, PluginSpec)>)> {
    let options = build::Options::new(&one.directory);
    // Ctrl-C reaches cargo as well, so nobody waits for this thread at the end.
    let built = tokio::task::spawn_blocking(move || build::build(&options)).await??;
    let config = one.config();
    if !config.is_file() {
        bail!(
            "{} is missing: it says what the plugin watches and may touch. From what the component imports, begin \
             with this, and put in your own keys:\n\n{}",
            config.display(),
            suggestion::for_component(&built)
        );
    }
    let specs = plugin::specs(&config, &built.component)?;
    Ok((built, specs))
}
