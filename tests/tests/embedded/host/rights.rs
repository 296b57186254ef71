//! The rights of the ServiceAccount as which a plugin's writes and live reads are sent.

use std::time::Duration;

use podium_devcluster::{Cluster, Logged, Options, Verb};
use podium_tests::{embedded, plugins, sandbox, wait::until, wire::Wire};
use podium_vocabulary::{LimitClass, PluginSpec, WriteResult};
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:default:registrar";

/// Creates a Role with these rules, bound to the plugin's account.
fn grant(cluster: &Cluster, name: &str, rule: Value) {
    let metadata = json!({"name": name, "namespace": "default"});
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": [rule]});
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "registrar"}],
    });
    cluster.create(role).unwrap();
    cluster.create(binding).unwrap();
}

/// A plugin with the account that makes the host calls of a script.
fn probe(script: &str) -> PluginSpec {
    let more = "  serviceAccountName: registrar\n  serviceAccountNamespace: default\n  \
                watch: { selector: { matchLabels: { app: cart } }, sections: [labels] }";
    let mut spec = plugins::guest("probe", "probe", more).unwrap();
    spec.limits.class = LimitClass::Interpreter;
    spec.grants = sandbox::everything();
    spec.config = json!(script).to_string().into();
    spec
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_event_is_counted_and_sent_once_a_role_permits_it() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let spec = probe("event Greeted");
    let id = spec.id.clone();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();
    let status = app.status().plugin(&id);
    until("the Event to wait", Duration::from_secs(60), async || {
        anyhow::ensure!(status.events() == [("delayed", 1)].into(), "{:?}", status.events());
        Ok(())
    })
    .await
    .unwrap();
    let creations = || {
        let writes = cluster.requests().writes().into_iter().filter(|write| write.resource.starts_with("events."));
        writes.map(|write| write.code).collect::<Vec<_>>()
    };
    assert_eq!(creations(), [403]);

    grant(&cluster, "events", json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}));
    until("the Event to be sent", Duration::from_secs(400), async || {
        anyhow::ensure!(status.events() == [("delayed", 1), ("sent", 1)].into(), "{:?}", status.events());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(creations().last(), Some(&201));
    app.shutdown().await;
}

fn attempts(cluster: &Cluster) -> Vec<Logged> {
    let writes = cluster.requests().writes();
    writes.into_iter().filter(|write| write.name == "cart-0").collect()
}

#[tokio::test(start_paused = true)]
async fn an_account_without_patch_backs_off_until_a_role_permits_it() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let register = embedded::create_pod(&cluster, "register", "register").unwrap();
    let uid = embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    // The plugin can only write its results to the register.
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["register"], "verbs": ["patch"]});
    grant(&cluster, "register", rule);
    let more = format!(
        "  serviceAccountName: registrar\n  serviceAccountNamespace: default\n  \
           watch: {{ selector: {{ matchLabels: {{ app: cart }} }}, sections: [labels] }}\n  \
           config: {{ register: {register} }}"
    );
    let spec = plugins::guest("registrar", "registrar", &more).unwrap();
    let id = spec.id.clone();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();

    let note = format!("guests.example/unsettled-{uid}");
    let reported = until("the report to the plugin", Duration::from_secs(200), async || {
        let notes = embedded::annotations(&cluster, "register").await?;
        // The first reports may be of the note itself, which waits with the label.
        let reported = notes.get(&note).filter(|reported| reported.starts_with("set label"));
        reported.cloned().ok_or_else(|| anyhow::anyhow!("{notes:?}"))
    });
    let reported = reported.await.unwrap();
    assert!(reported.starts_with(&format!("set label guests.example/seen={uid} on default/cart-0: ")), "{reported}");
    assert!(reported.contains("Forbidden") && reported.contains("cannot patch resource"), "{reported}");

    // Five minutes of the cluster's time without the right.
    tokio::time::sleep(Duration::from_secs(300)).await;
    let refused = attempts(&cluster);
    assert!(refused.iter().all(|write| write.code == 403 && write.impersonated.as_deref() == Some(USER)));
    assert!((6..=14).contains(&refused.len()), "{} requests in five minutes", refused.len());
    let pauses: Vec<i64> = refused.windows(2).map(|pair| pair[1].at_millis - pair[0].at_millis).collect();
    let long: Vec<i64> = pauses.iter().copied().filter(|millis| *millis >= 20).collect();
    assert!(long.is_sorted_by(|shorter, longer| *shorter <= longer + 1_000), "no pause is shorter: {pauses:?}");
    let status = app.status().plugin(&id);
    // The count includes those that were not sent.
    assert!(status.writes()["forbidden"] >= refused.len() as u64);
    assert_eq!(embedded::label(&cluster, "cart-0", "guests.example/seen").await.unwrap(), None);

    grant(&cluster, "carts", json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}));
    // The longest back-off is 5 min.
    until("the label", Duration::from_secs(400), async || {
        let label = embedded::label(&cluster, "cart-0", "guests.example/seen").await?;
        anyhow::ensure!(label.as_ref() == Some(&uid), "{label:?}");
        Ok(())
    })
    .await
    .unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(attempts(&cluster).last().map(|write| write.code), Some(200));
    assert!(status.writes().contains_key(WriteResult::Applied.name()));
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_live_read_has_the_rights_of_the_account() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let spec = probe("live default cart-0\nrequeue 1000");
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();
    let reads = || {
        let of_plugin = |read: &Logged| read.impersonated.is_some() && read.verb == Verb::Get && read.name == "cart-0";
        let reads = cluster.requests().all().into_iter().filter(of_plugin);
        reads.map(|read| (read.impersonated.unwrap_or_default(), read.code)).collect::<Vec<_>>()
    };
    let read_with = async |code: u16| {
        until("a live read", Duration::from_secs(60), async || {
            anyhow::ensure!(reads().last() == Some(&(USER.to_owned(), code)), "{:?}", reads());
            Ok(())
        })
        .await
        .unwrap();
    };
    read_with(403).await;
    grant(&cluster, "pods", json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}));
    read_with(200).await;
    app.shutdown().await;
}
