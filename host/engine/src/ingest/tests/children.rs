//! Which Pod a plugin runs on after another client has changed an object that it applied.

use podium_vocabulary::{Related, Relation, Scope};

use super::{
    groups::{naming, taken},
    *,
};

/// Returns a Pod of the StatefulSet `web`.
fn of_web(name: &str, app: &str, deleting: bool, revision: u64) -> Arc<CachedPod> {
    let mut wire = podium_wire::Pod::default();
    wire.header.namespace = "shop".into();
    wire.header.name = name.into();
    wire.header.uid = name.into();
    wire.header.resource_version = revision.to_string();
    wire.labels.insert("app".into(), app.into());
    wire.owners.push(podium_wire::Owner {
        api_version: "apps/v1".into(),
        kind: "StatefulSet".into(),
        name: "web".into(),
        uid: "u-web".into(),
        controller: true,
        block_owner_deletion: true,
    });
    wire.lifecycle.deletion_timestamp = deleting.then_some(podium_wire::Timestamp(1));
    Arc::new(CachedPod::new(&wire).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_changed_object_runs_the_plugin_on_its_pod_or_one_of_its_workload() {
    let workload = Relation::Workload.group(&Scope::Cluster, &"shop".into(), "StatefulSet/web");
    let gone = PodKey::new("shop", "z", "z");
    let present = |name: &str| PodKey::new("shop", name, "of an incarnation before");
    for (pod, workload, expected) in [
        (present("b"), None, Some("b")),
        (present("b"), workload.clone(), Some("b")),
        (present("a"), workload.clone(), Some("b")),
        (gone.clone(), workload.clone(), Some("b")),
        (gone.clone(), None, None),
        (present("a"), None, None),
        (present("d"), None, None),
        (present("d"), workload, Some("b")),
    ] {
        for related in [None, Some(Related { by: Relation::Workload, debounce: Duration::ZERO })] {
            let mut harness = Harness::plain(Backoff::default());
            let pods = [
                of_web("a", "web", true, 1),
                of_web("b", "web", false, 1),
                of_web("c", "web", false, 1),
                of_web("d", "other", false, 1),
            ];
            harness.list(pods.into_iter().map(Record::from).collect(), 2);
            let (named, body) = naming(|_| Ok(Outcome::Settled));
            let mut spec = spec(Some("web"));
            spec.watch.related = related;
            harness.load_spec(spec, body);
            harness.work(2);
            harness.settle().await;
            taken(&named);
            let plugin = harness.dispatch.registry.get(harness.lane).unwrap();
            let found = harness.dispatch.child_changed(&plugin, Some(&pod), workload.as_ref()).await;
            harness.settle().await;
            assert_eq!(found, expected.is_some(), "{pod} {workload:?}");
            assert_eq!(taken(&named), Vec::from_iter(expected), "{pod} {workload:?}");
            if let Some(run) = harness.dispatch.registry.runs(&plugin.spec.id, 1, |_| true).first() {
                assert_eq!(run.why.names() == ["child"], expected.is_some(), "{:?}", run.why);
            }
        }
    }
}
