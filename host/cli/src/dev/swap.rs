//! Rebuilds a crate after a save and replaces its plugins in the host.
//!
//! A plugin never runs under a configuration that was removed. If the new one is invalid, or the component does not
//! match it, the plugin is stopped; if only the source does not compile, the previous version continues.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::bail;
use podium_host::app::App;
use podium_vocabulary::{PluginId, PluginSpec};
use tokio::time::Instant;

use super::{crates::Crate, environment::Environment};
use crate::{
    build::{self, Built, Install},
    plugin, script, suggestion, ui,
};

/// The plugins of one crate that the host runs.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// The plugins in their last loaded version.
    pub(super) plugins: BTreeMap<PluginId, PluginSpec>,
    /// The component of the last successful build.
    component: Option<PathBuf>,
}

/// Builds one crate and loads its plugins. Errors are printed.
pub(super) async fn swap(app: &App, environment: &Environment, one: &Crate, running: &mut Running) {
    if let Err(error) = try_swap(app, environment, one, running).await {
        ui::error(&error);
        eprintln!("{}: {}; correct the error and save", one.directory.display(), running.described());
    }
}

async fn try_swap(app: &App, environment: &Environment, one: &Crate, running: &mut Running) -> anyhow::Result<()> {
    let began = Instant::now();
    let config = one.config();
    let script = one.script();
    if let Some(language) = script {
        script::embed(&one.directory, language)?;
    }
    // Done before the build, which takes time and may fail: permissions that the file does not have any more are
    // revoked at once.
    match plugin::read(std::slice::from_ref(&config), None) {
        Ok(plugins) => {
            let specs: Vec<_> = plugins.into_iter().map(|plugin| plugin.spec).collect();
            running.keep_only(app, &specs).await;
            specs.iter().for_each(|spec| app.restrict(spec));
            if let Some(language) = script {
                let size = one.directory.join(language.file()).metadata().ok().map(|metadata| metadata.len());
                for spec in specs {
                    if running.plugins.get(&spec.id) != Some(&spec) {
                        load(app, environment, running, spec, size, began).await;
                    }
                }
                return Ok(());
            }
        }
        Err(error) if config.is_file() => {
            running.stop(app, "its configuration is invalid; correct plugin.yaml and save").await;
            return Err(error);
        }
        Err(_) => running.stop(app, "plugin.yaml was removed").await,
    }
    let built = build(one, environment.install).await;
    if !config.is_file() {
        running.stop(app, "plugin.yaml was removed").await;
        bail!(
            "{} is missing: it has the sections to watch and the grants. A first version, from the imports of the \
             component; replace the keys:\n\n{}",
            config.display(),
            suggestion::for_component(&built?)
        );
    }
    let (component, size) = match (built, &running.component) {
        (Ok(built), _) => (built.component, Some(built.bytes)),
        (Err(error), None) => return Err(error),
        (Err(error), Some(before)) => {
            ui::error(&error);
            (before.clone(), None)
        }
    };
    let specs = match plugin::specs(&config, &component) {
        Ok(specs) => specs,
        Err(error) => {
            running.stop(app, "its configuration does not name the component; correct plugin.yaml and save").await;
            return Err(error);
        }
    };
    running.component = Some(component);
    let specs: Vec<_> = specs.into_iter().map(|plugin| plugin.spec).collect();
    running.keep_only(app, &specs).await;
    for spec in specs {
        load(app, environment, running, spec, size, began).await;
    }
    Ok(())
}

/// Loads one plugin. `size` is the size of a component that was just built, or `None` if the loaded component did not
/// change.
async fn load(
    app: &App,
    environment: &Environment,
    running: &mut Running,
    spec: PluginSpec,
    size: Option<u64>,
    began: Instant,
) {
    let id = spec.id.clone();
    let before = running.plugins.get(&id);
    let same_configuration = before == Some(&spec);
    if size.is_none() && same_configuration {
        match spec.suspend {
            true => eprintln!("{id}  is still suspended"),
            false => eprintln!("{id}  the previous version continues"),
        }
        return;
    }
    let loaded = async {
        let file = spec.source.file().map(std::path::Path::to_owned);
        visible(environment, &spec)?;
        if let Some(namespace) = &id.namespace {
            environment.provide_namespace(namespace).await?;
        }
        app.load(spec.clone()).await?;
        anyhow::Ok(file)
    };
    match loaded.await {
        Ok(file) => {
            let done = match (before, size) {
                _ if spec.suspend => "suspended: plugin.yaml has suspend: true",
                (None, _) => "loaded",
                (Some(_), Some(_)) => "swapped",
                (Some(_), None) => "runs the previous version with the new configuration",
            };
            let size = size.or_else(|| Some(file?.metadata().ok()?.len())).map_or(String::new(), ui::size);
            eprintln!("{id}  {done}  {size}  {:.1} s", began.elapsed().as_secs_f64());
            running.plugins.insert(id, spec);
        }
        Err(error) => {
            ui::error(&error.context(format!("plugin {id}")));
            // The host decides by the same rule, and may retry loading the new version.
            if before.is_some_and(|before| !before.suspend && spec.permits(before)) {
                eprintln!("{id}  the previous version continues");
                return;
            }
            app.unload(&id).await;
            if running.plugins.remove(&id).is_some() {
                eprintln!(
                    "{id}  stopped: its previous configuration was replaced, and the component cannot be loaded with \
                    the new one. Correct plugin.yaml or the source and save"
                );
            }
        }
    }
}

/// Returns an error for a plugin in a namespace that is not watched, because it would never run.
fn visible(environment: &Environment, spec: &PluginSpec) -> anyhow::Result<()> {
    match (&environment.only, &spec.id.namespace) {
        (Some(only), Some(own)) if **own != **only => bail!(
            "its namespace is {own}, and --namespace {only} watches only that one, so it would never run; leave \
             --namespace out, or set metadata.namespace to {only}"
        ),
        _ => Ok(()),
    }
}

async fn build(one: &Crate, install: Install) -> anyhow::Result<Built> {
    let options = build::Options { install, ..build::Options::new(&one.directory) };
    // Ctrl-C reaches cargo as well, so this thread is not joined at the end.
    tokio::task::spawn_blocking(move || build::build(&options)).await?
}

impl Running {
    /// Returns which plugins of the crate still run after an error.
    fn described(&self) -> String {
        let ids: Vec<String> = self.plugins.keys().map(ToString::to_string).collect();
        match &ids[..] {
            [] => "stopped: no plugin of this crate runs".to_owned(),
            ids => format!("{} runs on in its previous version", ids.join(", ")),
        }
    }

    /// Stops all plugins of the crate.
    async fn stop(&mut self, app: &App, why: &str) {
        for (id, _) in std::mem::take(&mut self.plugins) {
            app.unload(&id).await;
            eprintln!("{id}  stopped: {why}");
        }
    }

    /// Unloads the plugins that the configuration no longer contains.
    async fn keep_only(&mut self, app: &App, specs: &[PluginSpec]) {
        let gone: Vec<_> = self.plugins.keys().filter(|id| specs.iter().all(|spec| spec.id != **id)).cloned().collect();
        for id in gone {
            self.plugins.remove(&id);
            app.unload(&id).await;
            eprintln!("{id}  unloaded");
        }
    }
}

#[cfg(test)]
mod tests {
    use podium_pods::testing;

    use super::*;

    #[test]
    fn after_an_error_it_is_said_whether_the_plugin_runs() {
        let mut running = Running::default();
        assert_eq!(running.described(), "stopped: no plugin of this crate runs");
        let spec = testing::plugin(Some("shop"), "tidy");
        running.plugins.insert(spec.id.clone(), spec);
        assert_eq!(running.described(), "shop/tidy runs on in its previous version");
    }
}
