//! Plugins with an order: they run one after another on a Pod, each on what the last one wrote, and may be stopped.

use std::time::Duration;

use podium_devcluster::{Cluster, Options};
use podium_host::app::App;
use podium_tests::{embedded, plugins, sandbox, wire::Wire};
use podium_vocabulary::{LimitClass, PluginSpec, Related, Relation};
use serde_json::json;

/// A plugin that makes the host calls of a script.
fn probe(name: &str, script: &str, after: &[&str]) -> PluginSpec {
    let mut spec = plugins::guest("probe", name, "  watch: { sections: [labels] }").unwrap();
    spec.limits.class = LimitClass::Interpreter;
    spec.grants = sandbox::everything();
    spec.config = json!(script).to_string().into();
    spec.after = after.iter().map(|name| (*name).to_owned()).collect();
    spec
}

/// Creates a Pod while the plugins are loaded. Returns the labels that they wrote, in the order of the requests, and
/// the runs of each.
async fn written(plugins: Vec<PluginSpec>) -> (Vec<String>, Vec<u64>) {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let ids: Vec<_> = plugins.iter().map(|spec| spec.id.clone()).collect();
    let app: App = embedded::host(&cluster, wire.client(), plugins).await.unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let label =
        |body: String| body.split("guests.example/").nth(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    let labels = wire.writes().into_iter().filter_map(|sent| label(sent.body)).collect();
    let runs = ids.iter().map(|id| app.status().plugin(id).runs()).collect();
    app.shutdown().await;
    cluster.shutdown().await;
    (labels, runs)
}

#[tokio::test(start_paused = true)]
async fn a_plugin_runs_after_the_writes_of_those_before_it() {
    // Each reads from the API server for longer than the one after it, which would therefore write first.
    let reads =
        |count: usize, label: &str| format!("{}label guests.example/{label} x", "live default cart-0\n".repeat(count));
    let plugins = |is_ordered: bool| {
        let after = |name: &'static str| if is_ordered { vec![name] } else { Vec::new() };
        let (second, third) =
            (probe("second", &reads(4, "b"), &after("first")), probe("third", &reads(0, "c"), &after("second")));
        vec![third, second, probe("first", &reads(8, "a"), &[])]
    };
    let (labels, runs) = written(plugins(true)).await;
    assert_eq!(labels, ["a", "b", "c"]);
    // One for the Pod, and at most one for each of the three writes.
    assert!(runs.iter().all(|runs| *runs <= 4), "{runs:?}");
    assert_eq!(written(plugins(false)).await.0, ["c", "b", "a"], "without an order");
}

#[tokio::test(start_paused = true)]
async fn between_plugins_of_groups_and_of_pods_there_is_no_order() {
    let of_groups = |mut spec: PluginSpec| {
        spec.watch.related = Some(Related { by: Relation::Label("app".into()), debounce: Duration::ZERO });
        spec
    };
    let guard = || probe("guard", "stop", &[]);
    let next = || probe("next", "label guests.example/a x", &["guard"]);
    // The write is a change that the guard is run on once more.
    for plugins in [vec![guard(), of_groups(next())], vec![of_groups(guard()), next()]] {
        let (labels, runs) = written(plugins).await;
        assert_eq!(labels, ["a"]);
        assert!(runs.iter().all(|runs| (1..=2).contains(runs)), "{runs:?}");
    }
    let both = vec![of_groups(guard()), of_groups(next())];
    assert_eq!(written(both).await, (Vec::new(), vec![1, 0]), "of one group");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_is_not_run_where_the_one_before_it_stops() {
    let plugins = vec![probe("guard", "stop", &[]), probe("next", "label guests.example/a x", &["guard"])];
    assert_eq!(written(plugins).await, (Vec::new(), vec![1, 0]));
}
