//! Objects that runs receive beside their Pod, in the test host.

use std::collections::BTreeMap;

use podium_sdk::{
    Outcome, Request, Result,
    testing::{Host, pod},
};
use serde::Deserialize;
use serde_json::json;

const CONFIGURATION: &str = r"
apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: { name: priced, namespace: shop }
spec:
  source: { file: priced.wasm }
  serviceAccountName: priced
  config: { currency: EUR }
  inputs:
  - { id: prices, apiVersion: v1, kind: ConfigMap, resource: configmaps, name: prices }
  grants: { write: { labels: [example.com/price] } }
";

#[derive(Deserialize)]
struct Prices {
    data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    currency: String,
}

fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let Config { currency } = request.config()?;
    let prices: Option<Prices> = request.input("prices")?;
    let price = prices.and_then(|mut prices| prices.data.remove("cart"));
    pod.label_to("example.com/price", price.map(|price| format!("{price}{currency}")).as_deref())?;
    Ok(Outcome::settled())
}

fn misnamed(request: &Request) -> Result<Outcome> {
    request.input::<Prices>("price").map(|_| Outcome::settled())
}

#[test]
fn a_run_receives_the_fields_of_the_present_object() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]).configured_by(CONFIGURATION);
    let label = |host: &Host| host.pod("shop", "cart-0").unwrap().labels.get("example.com/price").cloned();
    assert!(host.reconcile(reconcile, "shop", "cart-0").result().is_ok());
    assert_eq!(label(&host), None, "there is no such object");
    host.set_input("prices", Some(json!({ "metadata": { "uid": "u" }, "data": { "cart": "3" } })));
    assert!(host.reconcile(reconcile, "shop", "cart-0").result().is_ok());
    assert_eq!(label(&host).as_deref(), Some("3EUR"));
    host.set_input("prices", Some(json!({ "data": [] })));
    let error = host.reconcile(reconcile, "shop", "cart-0").result().clone().unwrap_err();
    assert!(error.is_terminal() && error.message().starts_with("input prices: data: "), "{error}");
    host.set_input("prices", None);
    assert!(host.reconcile(reconcile, "shop", "cart-0").result().is_ok());
    assert_eq!(label(&host), None);
}

#[test]
fn an_input_that_is_not_configured_is_an_error() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]).configured_by(CONFIGURATION);
    let error = host.reconcile(misnamed, "shop", "cart-0").result().clone().unwrap_err();
    assert!(error.message().contains("the input price is not available, or spec.inputs does not name it"), "{error}");
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    let error = host.reconcile(misnamed, "shop", "cart-0").result().clone().unwrap_err();
    assert!(error.is_terminal() && error.message().contains("spec.inputs is missing"), "{error}");
}

#[test]
#[should_panic(expected = "spec.inputs of the configuration has no price")]
fn a_test_that_sets_another_input_is_a_mistake() {
    Host::with_pods([pod("shop", "cart-0")]).configured_by(CONFIGURATION).set_input("price", None);
}

/// The names of objects of an input with a selector.
fn listed(request: &Request) -> Result<Outcome> {
    #[derive(Deserialize)]
    struct Table {
        metadata: Metadata,
        data: BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
    }
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let tables: Vec<Table> = request.input("tables")?.unwrap_or_default();
    let names: Vec<String> =
        tables.into_iter().map(|table| format!("{}{}", table.metadata.name, table.data.len())).collect();
    pod.label_to("example.com/price", Some(&names.join(".")))?;
    Ok(Outcome::settled())
}

#[test]
fn an_input_with_a_selector_is_a_list() {
    let configuration = CONFIGURATION
        .replace("name: prices", "selector: { matchLabels: { tier: a } }")
        .replace("id: prices", "id: tables");
    let mut host = Host::with_pods([pod("shop", "cart-0")]).configured_by(&configuration);
    let label = |host: &Host| host.pod("shop", "cart-0").unwrap().labels.get("example.com/price").cloned();
    assert!(host.reconcile(listed, "shop", "cart-0").result().is_ok());
    assert_eq!(label(&host).as_deref(), Some(""));
    let table = |name: &str| json!({ "metadata": { "name": name, "uid": "u" }, "data": { "a": "1" }, "other": 1 });
    host.set_input("tables", Some(json!([table("y"), table("x")])));
    assert!(host.reconcile(listed, "shop", "cart-0").result().is_ok());
    assert_eq!(label(&host).as_deref(), Some("x1.y1"));
}

#[test]
#[should_panic(expected = "input prices: an array with a selector, and otherwise one object")]
fn a_list_for_one_object_is_a_mistake() {
    Host::with_pods([pod("shop", "cart-0")]).configured_by(CONFIGURATION).set_input("prices", Some(json!([])));
}
