//! Server-side apply of planned objects, and what to do about a refusal.

use anyhow::{Context, anyhow, bail};
use http::{Request, header::CONTENT_TYPE};
use kube::Client;
use podium_vocabulary::text;
use serde_json::Value;

/// The field manager of all objects.
pub(super) const MANAGER: &str = "podium-deploy";
const KINDS: &str = "/apis/podium.dev/v1alpha1";

/// Whether the API server stores an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    DryRun,
    Store,
}

/// Applies one object, and returns it as it is stored.
///
/// # Errors
/// Returns the API server's error.
pub(super) async fn apply(client: &Client, object: &Value, mode: Mode, force: bool) -> Result<Value, kube::Error> {
    let dry_run = if mode == Mode::DryRun { "&dryRun=All" } else { "" };
    let request = Request::patch(format!("{}?fieldManager={MANAGER}&force={force}{dry_run}", path(object)))
        .header(CONTENT_TYPE, "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Reads an object.
///
/// # Errors
/// Returns an error if it is gone, or the API server does not answer.
pub(super) async fn get(client: &Client, object: &Value) -> anyhow::Result<Value> {
    let request = Request::get(path(object)).body(Vec::new())?;
    let answer = client.request(request).await;
    answer.with_context(|| format!("{} is applied, and its status cannot be read", named(object)))
}

/// Returns an error that says how to install the kinds of plugins if the cluster does not serve them.
pub(super) async fn require_kinds(client: &Client) -> anyhow::Result<()> {
    match client.request::<Value>(Request::get(KINDS).body(Vec::new())?).await {
        Err(kube::Error::Api(status)) if status.code == 404 => bail!(
            "the cluster does not serve the kinds of podium.dev/v1alpha1: install podium-host (docs/install.md), or \
             the kinds without it: podium schema crds | kubectl apply --server-side -f -"
        ),
        answer => answer.map(drop).context("cannot ask the cluster for the kinds of podium.dev/v1alpha1"),
    }
}

/// Adds what to do to an error of [`apply`].
pub(super) fn explain(object: &Value, error: kube::Error) -> anyhow::Error {
    let shown = named(object);
    let kube::Error::Api(status) = &error else {
        return anyhow::Error::from(error).context(format!("cannot apply {shown}"));
    };
    let details = status.details.as_ref();
    let causes = details.map_or(&[][..], |details| &details.causes).iter();
    let conflicts = causes.filter(|cause| cause.reason == "FieldManagerConflict");
    let conflicts: Vec<_> =
        conflicts.map(|cause| format!("{}: {}", text::line(&cause.field), text::line(&cause.message))).collect();
    if !conflicts.is_empty() {
        return anyhow!(
            "{shown} has fields of other field managers: {}; remove the fields from what these apply, or take them \
             over with --force-conflicts",
            conflicts.join(", ")
        );
    }
    if status.code == 404 && details.is_some_and(|details| details.kind == "namespaces") {
        let namespace = field(object, "namespace");
        return anyhow!(
            "cannot apply {shown}: the namespace is missing; create it: kubectl create namespace {namespace}"
        );
    }
    anyhow!("cannot apply {shown}: {}", text::line(&status.message))
}

/// Returns true if the user has no right to the request.
pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Returns kind, namespace and name.
pub(super) fn named(object: &Value) -> String {
    let (namespace, name) = (field(object, "namespace"), field(object, "name"));
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    format!("{} {name}", object["kind"].as_str().unwrap_or_default())
}

fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"][name].as_str().unwrap_or_default()
}

/// Returns the path of an object. The plurals of all kinds that are planned end with `s`.
fn path(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = if version.contains('/') { "apis" } else { "api" };
    let plural = format!("{}s", object["kind"].as_str().unwrap_or_default().to_lowercase());
    let name = field(object, "name");
    match field(object, "namespace") {
        "" => format!("/{group}/{version}/{plural}/{name}"),
        namespace => format!("/{group}/{version}/namespaces/{namespace}/{plural}/{name}"),
    }
}
