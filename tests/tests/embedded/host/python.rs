//! The contract does not depend on Rust: the plugin in Python, built by its own recipe, in the real engine.

use std::time::Duration;

use podium_devcluster::{Cluster, Options};
use podium_tests::{embedded, plugins, process, wait, wire::Wire};

#[tokio::test(start_paused = true)]
async fn a_plugin_in_python_labels_a_pod_when_it_comes_of_age() {
    let Some(component) = plugins::python().unwrap() else { return };
    let sample = process::workspace_dir().join("plugins/pod-age-python/plugin.yaml");
    let text = std::fs::read_to_string(sample).unwrap();
    let component = component.display().to_string();
    let text = text.replace("pod_age_python.wasm", &component).replace("week: 604800, month: 2592000", "minute: 60");
    let spec = plugins::configured(&text).unwrap();

    let cluster = Cluster::start(Options::default()).unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();
    embedded::create_pod(&cluster, "young", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let age = async || embedded::label(&cluster, "young", "podium.dev/age").await;
    assert_eq!(age().await.unwrap(), None);

    wait::until("the Pod to come of age", Duration::from_secs(120), async || {
        anyhow::ensure!(age().await?.as_deref() == Some("minute"));
        Ok(())
    })
    .await
    .unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let plugins = app.status().plugins();
    assert_eq!(plugins[0].1.failures(), Default::default(), "{:?}", plugins[0].1.last_failure());
    app.shutdown().await;
}
