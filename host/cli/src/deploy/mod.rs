//! `podium deploy`: the plugins of a plugin.yaml into a cluster, from the file of `podium dev`.
//!
//! Builds, checks, publishes and derives RBAC by the functions of the commands that do one of these. plugin.yaml is
//! changed by nothing but the copy of a script, as by `podium build`.

mod apply;
mod args;
mod plan;
mod status;
mod wait;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use kube::Client;
use podium_host::config::Defined;
use podium_registry::Reference;
use podium_vocabulary::{PluginId, Source};
use serde_json::{Value, json};

use self::{
    apply::{Mode, named},
    plan::{Code, Planned},
};
use crate::{
    args::Format,
    build::{self, command::plugin_of},
    check, cluster, plugin,
    publish::push,
    script, ui,
};

pub use self::args::Deploy;

/// Deploys, waits and prints.
///
/// # Errors
/// Returns an error if the file has mistakes, if the code does not build or cannot be published, or if the API server
/// refuses an object. A plugin that does not run is reported, and the exit code is 1.
pub(crate) fn run(arguments: &Deploy) -> anyhow::Result<ExitCode> {
    if arguments.output == Format::Yaml && arguments.dry_run.is_none() {
        bail!("--output yaml: prints the objects of a dry run; add --dry-run=client");
    }
    let file = prepare(arguments)?;
    ui::block_on(deploy(arguments, &file))
}

async fn deploy(arguments: &Deploy, file: &Path) -> anyhow::Result<ExitCode> {
    let planned = plan(arguments, file).await?;
    let objects = objects(&planned, arguments);
    if arguments.dry_run.is_some() {
        ui::print(&match arguments.output {
            Format::Yaml => ui::yaml_documents(objects)?,
            Format::Json => format!("{}\n", json!({ "ok": true, "objects": objects })),
            Format::Table => objects.iter().map(|object| format!("{} (dry run)\n", named(object))).collect(),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let client = cluster::connect(arguments.kubeconfig.as_deref(), arguments.context.as_deref()).await?;
    apply::require_kinds(&client).await?;
    for object in &objects {
        if let Err(error) = apply::apply(&client, object, Mode::DryRun, arguments.force_conflicts).await {
            if apply::is_forbidden(&error) && planned.iter().any(|(_, planned)| planned.rights.contains(object)) {
                return for_administrator(&planned, &apply::explain(object, error), arguments);
            }
            return Err(apply::explain(object, error).context("nothing was changed"));
        }
    }
    let applied = store(&client, &objects, arguments).await?;
    let reports = wait::wait(&client, &planned, &applied, arguments).await?;
    wait::print(&reports, &objects, arguments)
}

/// Applies the objects, and returns those of plugins.
async fn store(client: &Client, objects: &[&Value], arguments: &Deploy) -> anyhow::Result<Vec<Value>> {
    let mut plugins = Vec::new();
    for object in objects {
        let applied = apply::apply(client, object, Mode::Store, arguments.force_conflicts).await;
        let applied = applied.map_err(|error| apply::explain(object, error))?;
        ui::report(&format!("{} applied", named(object)));
        if object["kind"].as_str().is_some_and(|kind| kind.ends_with("ReconcilePlugin")) {
            plugins.push(applied);
        }
    }
    Ok(plugins)
}

/// Builds and checks the plugins of the file, and returns it.
fn prepare(arguments: &Deploy) -> anyhow::Result<PathBuf> {
    let file = match &*check::files(std::slice::from_ref(&arguments.path))? {
        [file] => file.clone(),
        files => bail!(
            "{} has several plugins; deploy them one by one: {}",
            arguments.path.display(),
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
        ),
    };
    build(&file, arguments)?;
    check::accepted(&file, arguments.runners.runners.as_deref())?;
    Ok(file)
}

/// Publishes the code, and plans the objects.
async fn plan(arguments: &Deploy, file: &Path) -> anyhow::Result<Vec<(Defined, Planned)>> {
    let plugins = plugin::read(&[file.to_owned()], None)?;
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).context("cannot read YAML")?;
    let documents: Vec<_> = documents.into_iter().filter(|document| !document.is_null()).collect();
    let mut planned = Vec::new();
    let mut registry = arguments.registry.as_deref();
    for (defined, document) in plugins.into_iter().zip(documents) {
        require_namespace(&defined.spec.id, arguments.namespace.as_deref())?;
        let code = code(&defined, &mut registry, arguments).await?;
        let one = plan::plan(&defined, document, &code, &arguments.host)?;
        // Those about the account and its rights concern who applies them.
        one.notes.iter().for_each(|note| ui::report(&format!("note: {note}")));
        planned.push((defined, one));
    }
    if let Some(reference) = registry {
        bail!("--registry {reference}: no plugin of {} has a component in a file to push", file.display());
    }
    Ok(planned)
}

/// Does what `podium build` does, before the file is checked.
fn build(file: &Path, arguments: &Deploy) -> anyhow::Result<()> {
    let directory = file.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    // A mistake in the file is reported without a minute of compilation.
    let plugins = || plugin::read(&[file.to_owned()], None);
    if script::is_in(directory) && file.ends_with(plugin::FILE) {
        // The mistake may be in the copy.
        let named = plugins().is_ok_and(|all| all.iter().all(|of| !matches!(of.spec.source, Source::Inline(_))));
        return if named { Ok(()) } else { script::embed(directory) };
    }
    let is_built = plugins()?.iter().any(|plugin| plugin.spec.source.file().is_some());
    if is_built && directory.join("Cargo.toml").is_file() {
        let install = arguments.toolchain.install_targets;
        plugin_of(&build::Options { install, ..build::Options::new(directory) }, Some(file))?;
    }
    Ok(())
}

/// Refuses a plugin of another namespace than the named one, as kubectl does.
fn require_namespace(id: &PluginId, named: Option<&str>) -> anyhow::Result<()> {
    match (&id.namespace, named) {
        (Some(own), Some(named)) if **own != *named => {
            bail!("--namespace {named}: {id} has metadata.namespace: {own}; pass --namespace={own}, or change the file")
        }
        _ => Ok(()),
    }
}

/// Publishes the code in the registry, or reads it for a ConfigMap. Takes the reference: it is of one component.
async fn code(defined: &Defined, registry: &mut Option<&str>, arguments: &Deploy) -> anyhow::Result<Code> {
    match &defined.spec.source {
        Source::Inline(script) if arguments.configmap || script.len() > podium_config::MAX_SCRIPT_BYTES => {
            let bytes = script.as_bytes().to_vec();
            return Ok(Code::Bytes { key: script::FILE.to_owned(), bytes, is_interpreted: false });
        }
        Source::Inline(_) | Source::ConfigMap { .. } | Source::Oci { .. } => return Ok(Code::InPlace),
        Source::File(_) => {}
    }
    let component = check::built(&defined.file, &defined.spec).context("the component is not built")?;
    let artifact = push::artifact(&component, None)?;
    if arguments.configmap {
        let is_interpreted = push::is_interpreted(&artifact);
        let key = artifact.title.clone().unwrap_or_else(|| "plugin.wasm".to_owned());
        return Ok(Code::Bytes { key, bytes: artifact.bytes.to_vec(), is_interpreted });
    }
    let Some(reference) = registry.take() else {
        bail!(
            "{}: a cluster cannot read the file {} of {}: add --registry HOST/REPOSITORY:TAG to push it, or \
             --configmap for a ConfigMap of at most 1 MiB; deploy several components one by one",
            defined.file.display(),
            component.display(),
            defined.spec.id
        )
    };
    let image = match arguments.dry_run {
        Some(_) => {
            ui::report(&format!("note: a dry run pushes nothing: podium push {} {reference}", component.display()));
            reference.parse::<Reference>()?.with_digest(artifact.digest()?)
        }
        None => push::to_registry(reference, &artifact, &arguments.access).await?.reference,
    };
    Ok(Code::Image { image: image.to_string(), pull_secret: arguments.pull_secret.clone() })
}

/// Returns the objects to apply, each once: plugins may share an account.
fn objects<'a>(planned: &'a [(Defined, Planned)], arguments: &Deploy) -> Vec<&'a Value> {
    let mut objects: Vec<&Value> = Vec::new();
    for object in planned.iter().flat_map(|(_, planned)| {
        let left_out = if arguments.no_rbac { planned.rights.len() } else { 0 };
        planned.objects().skip(left_out)
    }) {
        if !objects.contains(&object) {
            objects.push(object);
        }
    }
    objects
}

/// Prints the objects that the user may not apply.
fn for_administrator(
    planned: &[(Defined, Planned)],
    error: &anyhow::Error,
    arguments: &Deploy,
) -> anyhow::Result<ExitCode> {
    let rights: Vec<&Value> = planned.iter().flat_map(|(_, planned)| &planned.rights).collect();
    let next = format!(
        "nothing was changed; an administrator of the namespace applies the account and its rights, which are on \
         stdout: kubectl apply --server-side --field-manager={} -f rbac.yaml; then repeat with --no-rbac",
        apply::MANAGER
    );
    ui::print(&match arguments.output {
        Format::Json => {
            let error = format!("{error:#}; {next}");
            format!("{}\n", json!({ "ok": false, "error": error, "objects": rights }))
        }
        Format::Table | Format::Yaml => ui::yaml_documents(rights)?,
    })?;
    ui::report(&format!("error: {error:#}\n{next}"));
    Ok(ExitCode::FAILURE)
}
