//! Reads and replicas of objects that are not Pods, in the test host.

use podium_sdk::{
    CallError, ObjectRef, Outcome, Request, Result, Value, WriteResult, objects, pods,
    testing::{Host, Write, pod},
    writes,
};
use serde::Deserialize;
use serde_json::json;

const CONFIGURATION: &str = "
apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: { name: migrated, namespace: shop }
spec:
  source: { file: migrated.wasm }
  serviceAccountName: migrated
  grants:
    read: { objects: [{ apiVersion: batch/v1, kind: Job, resource: jobs }] }
    write: { labels: [migrated], objects: [{ apiVersion: v1, kind: ConfigMap, resource: configmaps }] }
";

#[derive(Deserialize)]
struct Job {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    succeeded: u32,
}

fn job(namespace: &str) -> ObjectRef {
    ObjectRef::new("batch/v1", "Job", namespace, "migrate")
}

fn reconcile(request: &Request) -> Result<Outcome> {
    let done = objects::get::<Job>(&job("shop"))?.is_some_and(|job| job.status.succeeded > 0);
    if done {
        writes::set_label(request.key(), "migrated", "yes")?;
    }
    Ok(Outcome::settled())
}

fn of_another_namespace(_: &Request) -> Result<Outcome> {
    objects::get::<Value>(&job("bank")).map(|_| Outcome::settled())
}

fn of_another_kind(_: &Request) -> Result<Outcome> {
    objects::get::<Value>(&ObjectRef::new("v1", "ConfigMap", "shop", "a")).map(|_| Outcome::settled())
}

fn of_a_secret(_: &Request) -> Result<Outcome> {
    objects::get::<Value>(&ObjectRef::new("v1", "Secret", "shop", "a")).map(|_| Outcome::settled())
}

/// Reads the object that it applied.
fn own(_: &Request) -> Result<Outcome> {
    let own = ObjectRef::new("v1", "ConfigMap", "shop", "own");
    let before = objects::get::<Value>(&own)?;
    let data = json!({ "runs": if before.is_some() { "2" } else { "1" } });
    let metadata = json!({ "namespace": "shop", "name": "own" });
    writes::apply_object(
        &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }),
        None,
    )?;
    Ok(Outcome::settled())
}

fn host() -> Host {
    Host::with_pods([pod("shop", "cart-0")]).configured_by(CONFIGURATION)
}

#[test]
fn an_object_is_read_as_the_type_of_the_plugin() {
    let mut host = host();
    host.reconcile(reconcile, "shop", "cart-0").assert_quiet();
    let set = |host: &mut Host, status: Value| {
        let metadata = json!({ "namespace": "shop", "name": "migrate" });
        host.set_object(json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "status": status }));
    };
    set(&mut host, json!({ "succeeded": "1" }));
    let error = host.reconcile(reconcile, "shop", "cart-0").result().clone().unwrap_err();
    assert!(error.is_terminal(), "{error}");
    assert!(error.message().starts_with("batch/v1 Job shop/migrate: status.succeeded: invalid type"), "{error}");
    set(&mut host, json!({ "succeeded": 1 }));
    assert!(host.reconcile(reconcile, "shop", "cart-0").result().is_ok());
    assert_eq!(host.pod("shop", "cart-0").unwrap().labels["migrated"], "yes");
}

#[test]
fn a_read_beyond_the_grants_is_refused_with_the_reason() {
    type Reconciler = fn(&Request) -> Result<Outcome>;
    let table: [(Reconciler, &str); 2] = [
        (of_another_namespace, "batch/v1 Job bank/migrate is outside of the namespace shop"),
        (of_another_kind, "add v1 ConfigMap to spec.grants.read.objects, which has [batch/v1 Job]"),
    ];
    for (reconcile, expected) in table {
        let error = host().reconcile(reconcile, "shop", "cart-0").result().clone().unwrap_err();
        assert_eq!(error.call_error(), Some(&CallError::NotGranted));
        assert!(error.message().contains(expected), "{error}");
    }
    let error = Host::with_pods([pod("shop", "cart-0")]).reconcile(of_a_secret, "shop", "cart-0").result().clone();
    let error = error.unwrap_err();
    assert!(matches!(error.call_error(), Some(CallError::Invalid(_))), "also without a configuration: {error}");
}

/// One replica for each Pod.
fn autoscale(_: &Request) -> Result<Outcome> {
    let web = ObjectRef::new("apps/v1", "Deployment", "shop", "web");
    objects::scale(&web, u32::try_from(pods::find().count()?)?)?;
    Ok(Outcome::settled())
}

#[test]
fn replicas_are_set_once_and_of_an_object_that_exists() {
    let mut host = Host::with_pods([pod("shop", "cart-0"), pod("shop", "cart-1")]);
    let web = ObjectRef::new("apps/v1", "Deployment", "shop", "web");
    let run = host.reconcile(autoscale, "shop", "cart-0");
    assert_eq!(run.reports()[0].result, WriteResult::Gone);
    assert_eq!(run.reports()[0].description, "scale apps/v1 Deployment shop/web to 2");
    let metadata = json!({ "namespace": "shop", "name": "web" });
    let spec = json!({ "replicas": 1, "paused": true });
    host.set_object(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec }));
    host.reconcile(autoscale, "shop", "cart-0").assert_writes([Write::scale(&web, 2)]);
    assert_eq!(host.object(&web).unwrap()["spec"], json!({ "replicas": 2, "paused": true }));
    host.reconcile(autoscale, "shop", "cart-0").assert_quiet();
}

#[test]
fn replicas_need_a_grant_of_their_own() {
    let error = host().reconcile(autoscale, "shop", "cart-0").result().clone().unwrap_err();
    assert!(error.message().contains("add apps/v1 Deployment to spec.grants.write.scale, which is empty"), "{error}");
}

#[test]
fn a_plugin_reads_the_object_that_it_applied() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    for runs in ["1", "2"] {
        assert!(host.reconcile(own, "shop", "cart-0").result().is_ok());
        let object = host.object(&ObjectRef::new("v1", "ConfigMap", "shop", "own")).unwrap();
        assert_eq!(object["data"]["runs"], runs);
    }
}
