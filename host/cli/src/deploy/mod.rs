//! `podium deploy`: the plugins of a plugin.yaml into a cluster, from the file of `podium dev`.
//!
//! Builds, checks, publishes and derives RBAC by the functions of the commands that do one of these. In plugin.yaml
//! only the copy of a script is changed, as by `podium build`, and by a dry run nothing.

pub(crate) mod apply;
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
use podium_registry::{Artifact, Reference};
use podium_vocabulary::{Language, PluginId, Source};
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

/// A plugin of the file, and its objects.
type Plugin = (Defined, Planned);

/// Deploys, waits and prints.
///
/// # Errors
/// Returns an error if the file has mistakes, if the code does not build or cannot be published, or if the API server
/// refuses an object. A plugin that does not run is reported, and the exit code is 1.
pub(crate) fn run(arguments: &Deploy) -> anyhow::Result<ExitCode> {
    if arguments.output == Format::Yaml && arguments.dry_run.is_none() {
        bail!("--output yaml: prints the objects of a dry run; add --dry-run=client");
    }
    let file = file(arguments)?;
    let component = build(&file, arguments)?;
    check::accepted(&file, component.as_deref(), arguments.runners.runners.as_deref())?;
    let (planned, artifact) = plan(arguments, &file, component.as_deref())?;
    ui::block_on(deploy(arguments, &planned, artifact))
}

/// `artifact` is to be pushed.
async fn deploy(arguments: &Deploy, planned: &[Plugin], artifact: Option<Artifact>) -> anyhow::Result<ExitCode> {
    let objects = objects(planned, arguments);
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
        if let Err(error) = apply::apply(&client, object, Mode::DryRun, arguments.force_conflicts).await
            && !apply::is_about_planned_role(&error, &objects)
        {
            if apply::is_forbidden(&error) && planned.iter().any(|(_, planned)| planned.rights.contains(object)) {
                return for_administrator(planned, &apply::explain(object, error), arguments);
            }
            return Err(apply::explain(object, error).context("nothing was changed"));
        }
    }
    if let (Some(reference), Some(artifact)) = (&arguments.registry, artifact) {
        push::to_registry(reference, &artifact, &arguments.access).await?;
    }
    let applied = store(&client, &objects, arguments).await?;
    let reports = wait::wait(&client, planned, &applied, arguments).await?;
    wait::print(&reports, &objects, arguments)
}

/// Applies the objects, and returns those of plugins.
async fn store(client: &Client, objects: &[&Value], arguments: &Deploy) -> anyhow::Result<Vec<Value>> {
    let mut plugins = Vec::new();
    for (at, object) in objects.iter().enumerate() {
        let applied = apply::apply(client, object, Mode::Store, arguments.force_conflicts).await;
        let applied = applied.map_err(|error| incomplete(&objects[..at], apply::explain(object, error)))?;
        ui::report(&format!("{} applied", named(object)));
        if object["kind"].as_str().is_some_and(|kind| kind.ends_with("ReconcilePlugin")) {
            plugins.push(applied);
        }
    }
    Ok(plugins)
}

/// Adds the objects that were applied to the error of a later one.
fn incomplete(applied: &[&Value], error: anyhow::Error) -> anyhow::Error {
    let names: Vec<_> = applied.iter().map(|object| named(object)).collect();
    if names.is_empty() { error } else { error.context(format!("applied before: {}; deploy again", names.join(", "))) }
}

/// Returns the only configuration file.
fn file(arguments: &Deploy) -> anyhow::Result<PathBuf> {
    match &*check::files(std::slice::from_ref(&arguments.path))? {
        [file] => Ok(file.clone()),
        files => bail!(
            "{} has several plugins; deploy them one by one: {}",
            arguments.path.display(),
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Plans the objects, and returns them with the component to push. `component` is the one that was just built.
fn plan(arguments: &Deploy, file: &Path, component: Option<&Path>) -> anyhow::Result<(Vec<Plugin>, Option<Artifact>)> {
    let plugins = plugin::read(&[file.to_owned()], component.and_then(Path::parent))?;
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).context("cannot read YAML")?;
    let documents: Vec<_> = documents.into_iter().filter(|document| !document.is_null()).collect();
    let mut planned = Vec::new();
    let mut pushed = None;
    for (defined, document) in plugins.into_iter().zip(documents) {
        require_namespace(&defined.spec.id, arguments.namespace.as_deref())?;
        let code = code(&defined, &mut pushed, arguments)?;
        let one = plan::plan(&defined, document, &code, &arguments.host)?;
        // Those about the account and its rights concern who applies them.
        one.notes.iter().for_each(|note| ui::report(&format!("note: {note}")));
        planned.push((defined, one));
    }
    if let Some(reference) = arguments.registry.as_ref().filter(|_| pushed.is_none()) {
        bail!("--registry {reference}: no plugin of {} has a component in a file to push", file.display());
    }
    if arguments.configmap && planned.iter().all(|(_, one)| one.code.is_none()) {
        bail!("--configmap: no plugin of {} has a component in a file, or a script, to put there", file.display());
    }
    Ok((planned, pushed))
}

/// Does what `podium build` does, before the file is checked, and returns the component.
fn build(file: &Path, arguments: &Deploy) -> anyhow::Result<Option<PathBuf>> {
    let directory = file.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    // A mistake in the file is reported without a minute of compilation.
    let plugins = || plugin::read(&[file.to_owned()], None);
    if let Some(language) = script::language_in(directory).filter(|_| file.ends_with(plugin::FILE)) {
        // The mistake may be in the copy.
        let named = plugins().is_ok_and(|all| all.iter().all(|of| !matches!(of.spec.source, Source::Inline(_))));
        if !named && arguments.dry_run.is_none() {
            script::embed(directory, language)?;
        } else if !named && script::embedded(directory, language)?.is_some() {
            bail!(
                "{}: inline is not a copy of {}, and a dry run changes no file: podium build {}",
                file.display(),
                language.file(),
                directory.display()
            );
        }
        return Ok(None);
    }
    let is_built = plugins()?.iter().any(|plugin| plugin.spec.source.file().is_some());
    if is_built && directory.join("Cargo.toml").is_file() {
        let install = arguments.toolchain.install_targets;
        let options = build::Options { install, ..build::Options::new(directory) };
        return Ok(Some(plugin_of(&options, Some(file))?.component));
    }
    Ok(None)
}

/// Refuses a plugin of another namespace than the named one, as kubectl does.
fn require_namespace(id: &PluginId, named: Option<&str>) -> anyhow::Result<()> {
    match (&id.namespace, named) {
        (Some(own), Some(named)) if **own != *named => {
            bail!("--namespace {named}: {id} has metadata.namespace: {own}; pass --namespace={own}, or change the file")
        }
        (None, Some(named)) => {
            bail!("--namespace {named}: a ClusterReconcilePlugin has no namespace; leave the flag out for {id}")
        }
        _ => Ok(()),
    }
}

/// Returns the place of the code. For a registry `pushed` becomes the component: a reference is of one.
fn code(defined: &Defined, pushed: &mut Option<Artifact>, arguments: &Deploy) -> anyhow::Result<Code> {
    match &defined.spec.source {
        Source::Inline(script) if arguments.configmap || script.len() > podium_config::MAX_SCRIPT_BYTES => {
            let bytes = script.as_bytes().to_vec();
            let key = defined.spec.language.map_or("script", Language::file).to_owned();
            return Ok(Code::Bytes { key, bytes, is_interpreted: false });
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
    let Some(reference) = arguments.registry.as_deref().filter(|_| pushed.is_none()) else {
        bail!(
            "{}: a cluster cannot read the file {} of {}: add --registry HOST/REPOSITORY:TAG to push it, or \
             --configmap for a ConfigMap of at most 1 MiB; deploy several components one by one",
            defined.file.display(),
            component.display(),
            defined.spec.id
        )
    };
    if arguments.dry_run.is_some() {
        ui::report(&format!("note: a dry run pushes nothing: podium push {} {reference}", component.display()));
    }
    let image = reference.parse::<Reference>()?.with_digest(artifact.digest()?);
    *pushed = Some(artifact);
    Ok(Code::Image { image: image.to_string(), pull_secret: arguments.pull_secret.clone() })
}

/// Returns the objects to apply, each once: plugins may share an account.
fn objects<'a>(planned: &'a [Plugin], arguments: &Deploy) -> Vec<&'a Value> {
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
fn for_administrator(planned: &[Plugin], error: &anyhow::Error, arguments: &Deploy) -> anyhow::Result<ExitCode> {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::hostile::Module;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        deploy: Deploy,
    }

    #[test]
    fn the_component_that_was_built_is_checked_and_deployed() {
        let [source, target] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [file, old] = ["plugin.yaml", "a.wasm"].map(|name| source.path().join(name));
        let yaml = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: { name: a, namespace: shop }\n\
            spec: { source: { file: a.wasm } }\n";
        std::fs::write(&file, yaml).unwrap();
        std::fs::write(old, "an old one").unwrap();
        let built = target.path().join("a.wasm");
        std::fs::write(&built, Module::DEFAULT.component().unwrap()).unwrap();
        let deploy = Command::parse_from(["deploy", "--configmap"]).deploy;
        check::accepted(&file, Some(&built), None).unwrap();
        let (planned, _) = plan(&deploy, &file, Some(&built)).unwrap();
        let sha256 = podium_registry::Digest::sha256(&std::fs::read(&built).unwrap()).hex();
        assert_eq!(planned[0].1.plugin["spec"]["source"]["configMap"]["sha256"], sha256);
    }

    #[test]
    fn an_incomplete_deployment_names_the_objects_that_were_applied() {
        let role = json!({ "kind": "Role", "metadata": { "name": "a", "namespace": "shop" } });
        let error = |applied: &[&Value]| format!("{:#}", incomplete(applied, anyhow::anyhow!("why")));
        assert_eq!(error(&[&role, &role]), "applied before: Role shop/a, Role shop/a; deploy again: why");
        assert_eq!(error(&[]), "why");
    }
}
