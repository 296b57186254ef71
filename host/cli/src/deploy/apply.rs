//! Server-side apply of planned objects, and what to do about a refusal.

use std::time::Duration;

use anyhow::{anyhow, bail};
use http::{Request, header::CONTENT_TYPE};
use kube::Client;
use podium_vocabulary::text;
use serde_json::Value;
use tokio::time::timeout;

/// The field manager of all objects.
pub(super) const MANAGER: &str = "podium-deploy";
const KINDS: &str = "/apis/podium.dev/v1alpha1";
/// How long a read may take that is repeated.
const ANSWER: Duration = Duration::from_secs(10);

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
/// Returns an error if it is gone, or the API server does not answer in time.
pub(super) async fn get(client: &Client, object: &Value) -> Result<Value, kube::Error> {
    let request = Request::get(path(object)).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let answer = timeout(ANSWER, client.request(request)).await;
    answer.unwrap_or_else(|_| Err(kube::Error::Service(format!("no answer within {} s", ANSWER.as_secs()).into())))
}

/// Returns an error that says how to install the kinds of plugins if the cluster does not serve them.
pub(super) async fn require_kinds(client: &Client) -> anyhow::Result<()> {
    match client.request::<Value>(Request::get(KINDS).body(Vec::new())?).await {
        Err(kube::Error::Api(status)) if status.code == 404 => bail!(
            "the cluster does not serve the kinds of podium.dev/v1alpha1: install podium-host (docs/install.md), or \
             the kinds without it: podium schema crds | kubectl apply --server-side -f -"
        ),
        answer => answer
            .map(drop)
            .map_err(|error| anyhow!("cannot ask the cluster for the kinds of podium.dev/v1alpha1: {}", shown(error))),
    }
}

/// Adds what to do to an error of [`apply`].
pub(super) fn explain(object: &Value, error: kube::Error) -> anyhow::Error {
    let named = named(object);
    let kube::Error::Api(status) = &error else { return anyhow!("cannot apply {named}: {}", shown(error)) };
    let details = status.details.as_ref();
    let causes = details.map_or(&[][..], |details| &details.causes).iter();
    let conflicts = causes.filter(|cause| cause.reason == "FieldManagerConflict");
    let conflicts: Vec<_> =
        conflicts.map(|cause| format!("{}: {}", text::line(&cause.field), text::line(&cause.message))).collect();
    if !conflicts.is_empty() {
        return anyhow!(
            "{named} has fields of other field managers: {}; remove the fields from what these apply, or take them \
             over with --force-conflicts",
            conflicts.join(", ")
        );
    }
    if status.code == 404 && details.is_some_and(|details| details.kind == "namespaces") {
        let namespace = field(object, "namespace");
        return anyhow!(
            "cannot apply {named}: the namespace is missing; create it: kubectl create namespace {namespace}"
        );
    }
    anyhow!("cannot apply {named}: {}", shown(error))
}

/// Returns an error as one line, with the next step.
pub(super) fn shown(error: kube::Error) -> String {
    let kube::Error::Api(status) = &error else { return text::line(&format!("{:#}", anyhow::Error::from(error))) };
    let next = match status.code {
        401 => "; log in again, or name another context of the kubeconfig with --context",
        403 => "; correct the cause, or have an administrator permit it",
        409 => "; deploy again, because something else has changed it at the same time",
        _ => "",
    };
    text::line(&status.message) + next
}

/// Returns true if the error of a dry run is that a role does not exist yet which is applied before its binding.
pub(super) fn is_about_planned_role(error: &kube::Error, planned: &[&Value]) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let Some(details) = status.details.as_ref().filter(|_| status.code == 404) else { return false };
    planned.iter().any(|object| {
        let is_kind = matches!(
            (&*details.kind, object["kind"].as_str()),
            ("roles", Some("Role")) | ("clusterroles", Some("ClusterRole"))
        );
        is_kind && field(object, "name") == details.name
    })
}

/// Returns true if a request that is repeated has the same error.
pub(super) fn is_lasting(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

/// Returns true if the user has no right to the request.
pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Returns kind, namespace and name.
pub(super) fn named(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    let name = field(object, "name");
    match field(object, "namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Returns a text of the metadata.
pub(crate) fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"][name].as_str().unwrap_or_default()
}

/// Returns the path of an object.
pub(crate) fn path(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = if version.contains('/') { "apis" } else { "api" };
    let plural = text::plural(object["kind"].as_str().unwrap_or_default());
    let name = field(object, "name");
    match field(object, "namespace") {
        "" => format!("/{group}/{version}/{plural}/{name}"),
        namespace => format!("/{group}/{version}/namespaces/{namespace}/{plural}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(code: u16, message: &str, details: &Value) -> kube::Error {
        let status = json!({ "status": "Failure", "code": code, "message": message, "details": details });
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_dry_run_passes_for_a_binding_of_a_role_that_is_planned() {
        let role = json!({ "kind": "Role", "metadata": { "name": "podium-plugin-a", "namespace": "shop" } });
        let missing = |code, kind: &str, name: &str| {
            let error = refusal(code, "not found", &json!({ "kind": kind, "name": name }));
            is_about_planned_role(&error, &[&role])
        };
        assert!(missing(404, "roles", "podium-plugin-a"));
        assert!(!missing(404, "roles", "another"));
        assert!(!missing(404, "clusterroles", "podium-plugin-a"));
        assert!(!missing(404, "namespaces", "podium-plugin-a"));
        assert!(!missing(403, "roles", "podium-plugin-a"));
    }

    #[test]
    fn text_of_the_server_is_one_line_with_the_next_step() {
        let object = json!({ "kind": "Role", "metadata": { "name": "a" } });
        for (error, expected) in [
            (kube::Error::Service("x\u{1b}[2J\ny".into()), r"ServiceError: x\u001b[2J\ny"),
            (refusal(401, "a\u{7}", &json!({})), r"a\u0007; log in again"),
            (refusal(403, "b", &json!({})), "b; correct the cause, or have an administrator"),
            (refusal(409, "c", &json!({})), "c; deploy again"),
            (refusal(500, "d\n", &json!({})), r"d\n"),
        ] {
            let error = format!("{:#}", explain(&object, error));
            assert!(error.starts_with(&format!("cannot apply Role a: {expected}")), "{error}");
        }
    }
}
