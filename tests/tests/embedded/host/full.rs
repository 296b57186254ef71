//! The full object, from the API server to a plugin with its grant.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use podium_devcluster::{Cluster, Options};
use podium_host::app::App;
use podium_tests::{embedded, plugins, wire::Wire};
use serde_json::json;

fn runs(app: &App) -> BTreeMap<String, u64> {
    let plugins = app.status().plugins();
    plugins.iter().map(|(id, status)| (id.name.to_string(), status.runs())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_change_in_no_section_wakes_only_watchers_of_full() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let sections = "sections: [labels]";
    let whole = plugins::guest_yaml("whole", "whole", "").unwrap().replace(sections, "sections: [full], live: true");
    let others = "sections: [labels, annotations, owners, spec, status], live: true";
    let others = plugins::guest_yaml("whole", "others", "").unwrap().replace(sections, others);
    let specs = [whole, others].map(|yaml| plugins::configured(&yaml).unwrap()).to_vec();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), specs).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let runs_of =
        |whole: u64, others: u64| BTreeMap::from([("whole".to_owned(), whole), ("others".to_owned(), others)]);
    assert_eq!(runs(&app), runs_of(1, 1));

    let pods = embedded::pods(&cluster, Some("default"));
    let patch = async |patch: serde_json::Value| {
        pods.patch_status("cart-0", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        embedded::at_rest(&cluster, &app).await.unwrap();
    };
    patch(json!({"status": {"hostIPs": [{"ip": "10.0.0.1"}]}})).await;
    assert_eq!(runs(&app), runs_of(2, 1), "no record has the addresses of its host");

    patch(json!({"status": {"phase": "Running"}})).await;
    assert_eq!(runs(&app), runs_of(3, 2));
    let held = app.reader().snapshot();
    let full = podium_pods::pod::PodView::get(&*held, "default", "cart-0").unwrap();
    let full = full.section_bytes(podium_wire::Section::Full).into_owned();
    let mut listed: serde_json::Value = serde_json::to_value::<Pod>(pods.get("cart-0").await.unwrap()).unwrap();
    listed["metadata"].as_object_mut().unwrap().remove("managedFields").unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&full).unwrap(), listed);
    app.shutdown().await;
    cluster.shutdown().await;
}
