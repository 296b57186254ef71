//! Claims about values that the SDK derives from a Pod, writes that it stages in one call, and runs of tests that it
//! decides.

mod support;

use std::cell::Cell;

use podium_sdk::{
    Condition, ConditionStatus, Container, Error, Event, Outcome, Pod, Quantity, Request, Result, Timestamp, Value,
    duration, json, log,
    testing::{Host, NOW, PodBuilder, Write, pod, pod_from_json},
    writes,
};

use support::{LABELS_ONLY, run};

#[test]
fn the_workload_of_a_pod_is_the_same_in_all_rollouts() {
    let pod = || pod("shop", "cart-0");
    let of_replica_set = |label: &str, hash: &str, name: &str| pod().owned_by("ReplicaSet", name).label(label, hash);
    let itself = |kind: &str, name: &str| Some(format!("{kind}/{name} uid-{kind}-{name}"));
    let derived = |kind: &str, name: &str| Some(format!("{kind}/{name} none"));
    for (pod, workload) in [
        (pod(), None),
        (pod().owned_by("Node", "node-1"), None),
        (
            pod().owned_by("StatefulSet", "db-7d9f8").label("pod-template-hash", "7d9f8"),
            itself("StatefulSet", "db-7d9f8"),
        ),
        (pod().owned_by("Job", "report-7"), itself("Job", "report-7")),
        (of_replica_set("pod-template-hash", "7d9f8", "cart-7d9f8"), derived("Deployment", "cart")),
        (of_replica_set("pod-template-hash", "66c4b", "cart-66c4b"), derived("Deployment", "cart")),
        (of_replica_set("pod-template-hash", "7d9f8", "cart-api-7d9f8"), derived("Deployment", "cart-api")),
        (of_replica_set("rollouts-pod-template-hash", "7d9f8", "cart-7d9f8"), derived("Rollout", "cart")),
        // Made by hand: another label, or a name that does not end with the hash.
        (of_replica_set("app", "7d9f8", "cart-7d9f8"), itself("ReplicaSet", "cart-7d9f8")),
        (of_replica_set("pod-template-hash", "7d9f8", "cart"), itself("ReplicaSet", "cart")),
        (of_replica_set("pod-template-hash", "7d9f8", "cart7d9f8"), itself("ReplicaSet", "cart7d9f8")),
        (of_replica_set("pod-template-hash", "7d9f8", "-7d9f8"), itself("ReplicaSet", "-7d9f8")),
        (of_replica_set("pod-template-hash", "", "cart-"), itself("ReplicaSet", "cart-")),
    ] {
        let run = run(&mut Host::with_pods([pod]), |request| {
            let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
            let workload = pod.workload()?;
            let text = workload.map(|of| format!("{}/{} {}", of.kind, of.name, of.uid.as_deref().unwrap_or("none")));
            pod.set_annotation("workload", &text.unwrap_or_default())?;
            Ok(Outcome::settled())
        });
        run.assert_writes([Write::set_annotation("shop/cart-0", "workload", &workload.unwrap_or_default())]);
    }
}

#[test]
fn the_workload_of_a_pod_needs_the_sections_that_name_it() {
    let of = |kind: &str, sections: &str| {
        let granted = LABELS_ONLY.replace("sections: [labels]", &format!("sections: [{sections}]"));
        let mut host = Host::with_pods([pod("shop", "cart-0").owned_by(kind, "cart")]).configured_by(&granted);
        let run = run(&mut host, |request| {
            request.pod().ok_or_else(|| Error::terminal("gone"))?.workload()?;
            Ok(Outcome::settled())
        });
        run.result().as_ref().map(drop).map_err(ToString::to_string)
    };
    assert_eq!((of("StatefulSet", "owners"), of("ReplicaSet", "owners, labels")), (Ok(()), Ok(())));
    assert!(of("StatefulSet", "labels").unwrap_err().contains("owners"));
    assert!(of("ReplicaSet", "owners").unwrap_err().contains("labels"));
}

type Say = fn(&Pod) -> Result<String>;

/// Runs a function on a Pod that is granted everything, and returns the text that it makes of it.
fn said(pod: PodBuilder, say: Say) -> String {
    thread_local!(static SAY: Cell<Option<Say>> = const { Cell::new(None) });
    SAY.set(Some(say));
    let run = run(&mut Host::with_pods([pod]), |request| {
        let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
        let said = SAY.get().ok_or_else(|| Error::terminal("nothing to say"))?(pod)?;
        Err(Error::terminal(said))
    });
    run.result().as_ref().err().map(|said| said.message().to_owned()).unwrap_or_default()
}

#[test]
fn what_a_pod_requests_follows_the_scheduler() {
    let pod = || pod("shop", "cart-0").container("web", "nginx:1").request("cpu", "500m").request("memory", "1Gi");
    let cpu: Say = |pod| Ok(pod.requests("cpu")?.to_string());
    assert_eq!(said(pod(), cpu), "0.5");
    assert_eq!(said(pod().container("log", "log:1").request("cpu", "1"), cpu), "1.5");
    assert_eq!(said(pod(), |pod| Ok(pod.requests("memory")?.value().to_string())), "1073741824");
    assert_eq!(said(pod(), |pod| Ok(pod.requests("nvidia.com/gpu")?.to_string())), "0");
    let starting = |requests: &'static [(&'static str, bool)]| {
        pod().with(move |pod| {
            for (cpu, sidecar) in requests {
                let mut container = Container { name: "init".to_owned(), ..Default::default() };
                container.requests.insert("cpu".to_owned(), (*cpu).to_owned());
                container.restart_policy = sidecar.then(|| "Always".to_owned());
                pod.spec.init_containers.push(container);
            }
        })
    };
    assert_eq!(said(starting(&[("400m", false), ("300m", false)]), cpu), "0.5", "one after the other, before the rest");
    assert_eq!(said(starting(&[("2", false), ("300m", false)]), cpu), "2", "the largest");
    assert_eq!(said(starting(&[("200m", true)]), cpu), "0.7", "a sidecar stays");
    assert_eq!(said(starting(&[("200m", true), ("1", false), ("100m", true)]), cpu), "1.2", "beside the one before it");
    assert_eq!(said(starting(&[("1", false), ("200m", true), ("100m", true)]), cpu), "1", "not beside those after it");
    let wrong = said(pod().request("cpu", "half"), cpu);
    assert_eq!(wrong, "container web: requests.cpu: \"half\" is no quantity, such as 500m, 2, 1.5Gi or 1e3");
}

#[test]
fn a_finished_pod_has_a_time_at_which_it_finished() {
    let at = |pod| said(pod, |pod| Ok(pod.finished_at()?.map_or("none".to_owned(), |at| at.to_string())));
    let pod = || pod("shop", "cart-0").created(Timestamp(0));
    let moved = |at| Condition {
        last_transition_time: Some(Timestamp(at)),
        ..Condition::new("PodScheduled", ConditionStatus::True)
    };
    assert_eq!(at(pod().terminated("init", 0, Timestamp(1_000)).phase("Running")), "none");
    let ended = pod().terminated("init", 0, Timestamp(1_000)).terminated("web", 1, Timestamp(9_000)).phase("Failed");
    assert_eq!(at(ended.condition(moved(60_000))), "1970-01-01T00:00:09Z");
    assert_eq!(at(pod().phase("Failed").condition(moved(60_000))), "1970-01-01T00:01:00Z", "evicted");
    assert_eq!(at(pod().phase("Failed")), "1970-01-01T00:00:00Z");
}

/// Cases whose results are the same in all languages: scripts repeat them in the suite `embedded`.
#[test]
fn values_are_derived_as_in_the_table() {
    let table: Value = include_str!("derived.json").parse().unwrap();
    let rows = |name: &str| table[name].as_array().unwrap().iter();
    let texts = |name: &str| rows(name).map(|text| text.as_str().unwrap());
    for row in rows("quantities") {
        let quantity: Quantity = row[0].as_str().unwrap().parse().unwrap();
        assert_eq!(row[1], format!("{quantity} {} {}", quantity.value(), quantity.millis()), "{row}");
    }
    for text in texts("saturated") {
        assert_eq!(text.parse::<Quantity>().unwrap().to_string(), i64::MAX.to_string(), "{text}");
    }
    assert!(texts("noQuantities").all(|text| text.parse::<Quantity>().is_err()));
    for row in rows("durations") {
        let found = duration(row[0].as_str().unwrap()).unwrap();
        assert_eq!(Some(found.as_secs_f64()), row[1].as_f64(), "{row}");
    }
    assert!(texts("noDurations").all(|text| duration(text).is_err()));
    for row in rows("pods") {
        let mut metadata = json!({ "name": "cart-0", "namespace": "shop", "uid": "1", "resourceVersion": "1" });
        metadata["creationTimestamp"] = "1970-01-01T00:00:00Z".into();
        let object = json!({ "metadata": metadata, "spec": row["spec"], "status": row["status"] });
        let derived = said(pod_from_json(&object.to_string()), |pod| {
            let finished = pod.finished_at()?.map_or("none".to_owned(), |at| (at.0 / 1_000).to_string());
            Ok(format!("{} {} {finished}", pod.requests("cpu")?, pod.is_ready()?))
        });
        assert_eq!(row["derived"], derived, "{row}");
    }
}

#[test]
fn a_report_emits_one_event_for_each_change_of_its_condition() {
    let reconcile: fn(&Request) -> Result<Outcome> = |request| {
        let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
        let waits = pod.container_statuses()?.iter().any(|status| !status.ready);
        let status = if waits { ConditionStatus::True } else { ConditionStatus::False };
        pod.report(&Condition::new("shop.example/Waits", status), Event::warning("Waits", format!("waits: {waits}")))?;
        pod.label_to("state", waits.then_some("waits"))?;
        pod.annotation_to("state", waits.then_some("waits"))?;
        Ok(Outcome::settled())
    };
    let mut host = Host::with_pods([pod("shop", "cart-0").waiting("web", "CrashLoopBackOff", 4)]);
    assert_eq!((run(&mut host, reconcile).events().len(), run(&mut host, reconcile).events().len()), (1, 0));
    host.restart();
    run(&mut host, reconcile).assert_quiet();
    assert_eq!(host.pod("shop", "cart-0").unwrap().labels["state"], "waits");
    host.put_pod(
        pod("shop", "cart-0").running_since("web", NOW, 4).label("state", "waits").annotation("state", "waits"),
    );
    let run_after = run(&mut host, reconcile);
    assert_eq!(run_after.events().len(), 1);
    assert!(run_after.writes().contains(&Write::remove_label("shop/cart-0", "state")), "{:?}", run_after.writes());
    assert!(run_after.writes().contains(&Write::remove_annotation("shop/cart-0", "state")));
    host.put_pod(pod("shop", "cart-0").waiting("web", "ImagePullBackOff", 0).terminating(NOW));
    run(&mut host, reconcile).assert_quiet();
}

#[test]
fn an_object_of_the_plugins_own_type_is_applied_like_json() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    let typed = run(&mut host, |_| {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ConfigMap {
            api_version: &'static str,
            kind: &'static str,
            metadata: Value,
        }
        let metadata = json!({"name": "summary", "namespace": "shop"});
        writes::apply_object(&ConfigMap { api_version: "v1", kind: "ConfigMap", metadata }, None)?;
        let no_json = std::collections::BTreeMap::from([((1, 2), "a key that is no text")]);
        assert!(writes::apply_object(&no_json, None).unwrap_err().is_terminal());
        Ok(Outcome::settled())
    });
    let metadata = json!({"name": "summary", "namespace": "shop"});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    typed.assert_writes([Write::apply_object(object, None)]);
}

#[test]
fn settle_runs_what_the_hosts_watch_would_run() {
    const CONFIGURATION: &str = "
apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: { name: p, namespace: shop }
spec:
  source: { file: p.wasm }
  watch: { sections: [labels], selector: { matchLabels: { app: cart } } }
  grants:
    read: { pods: { sections: [labels, annotations] } }
    write: { labels: [team], annotations: ['shop.example/*'] }
";
    let reconcile: fn(&Request) -> Result<Outcome> = |request| {
        let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
        pod.set_label("team", pod.annotation("shop.example/owner")?.unwrap_or("web"))?;
        pod.set_annotation("shop.example/seen", "true")?;
        Ok(Outcome::settled())
    };
    let cart = |name: &str| pod("shop", name).label("app", "cart");
    let mut host = Host::with_pods([cart("a"), cart("b"), pod("shop", "other"), pod("bank", "a").label("app", "cart")])
        .configured_by(CONFIGURATION);
    let ran = |host: &mut Host| host.settle(reconcile).into_iter().map(|(pod, _)| pod).collect::<Vec<_>>();
    assert_eq!(ran(&mut host), ["shop/a", "shop/b", "shop/a", "shop/b"], "each is woken by its own label once");
    assert!(ran(&mut host).is_empty());
    let there = host.pod("shop", "a").unwrap();
    let changed = |change: fn(&mut podium_wire::Pod)| {
        let mut pod = there.clone();
        change(&mut pod);
        pod
    };
    host.put_pod(changed(|pod| drop(pod.annotations.insert("shop.example/owner".into(), "bank".into()))));
    assert!(ran(&mut host).is_empty(), "annotations are read and not watched");
    host.put_pod(changed(|pod| drop(pod.labels.remove("app"))));
    assert_eq!(ran(&mut host), ["shop/a"], "ceases to match");
    host.put_pod(there.clone());
    assert_eq!(ran(&mut host), ["shop/a"], "matches again");
    host.put_pod(changed(|pod| pod.lifecycle.deletion_timestamp = Some(NOW)));
    host.remove_pod("shop", "a");
    host.remove_pod("shop", "other");
    assert_eq!(ran(&mut host), ["shop/a"], "its deletion, in one run with the change before");
}

#[test]
fn settle_runs_once_for_a_group_and_for_its_end() {
    const CONFIGURATION: &str = "
apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: { name: p, namespace: shop }
spec:
  source: { file: p.wasm }
  watch: { sections: [status], selector: { matchLabels: { app: cart } }, related: { by: label, label: tier } }
  grants:
    read: { pods: { sections: [labels, status] } }
";
    let cart = |name: &str, tier: &str| pod("shop", name).label("app", "cart").label("tier", tier);
    let bank = pod("bank", "a").label("app", "cart").label("tier", "web");
    let other = pod("shop", "other").label("tier", "web");
    let mut host = Host::with_pods([cart("a", "web"), cart("b", "web"), cart("c", "api"), other, bank])
        .configured_by(CONFIGURATION);
    let reconcile: fn(&Request) -> Result<Outcome> = |request| {
        let kind = if request.pod().is_some() { "on" } else { "ended" };
        let tier = request.pod().or(request.deleted()).ok_or_else(|| Error::terminal("no state"))?.label("tier")?;
        log::info(&format!("{kind} {} {}", request.key().name, tier.unwrap_or_default()), &[]);
        Ok(Outcome::settled())
    };
    let ran = |host: &mut Host| {
        let runs = host.settle(reconcile).into_iter();
        runs.flat_map(|(_, run)| run.logs().iter().map(|line| line.message.clone()).collect::<Vec<_>>()).collect()
    };
    let runs: Vec<String> = ran(&mut host);
    assert_eq!(runs, ["on a web", "on c api"]);
    host.put_pod(cart("b", "web").phase("Running"));
    host.put_pod(cart("a", "web").phase("Running").terminating(NOW));
    let runs: Vec<String> = ran(&mut host);
    assert_eq!(runs, ["on b web"], "once, on one that is not being deleted");
    host.put_pod(cart("c", "web"));
    let runs: Vec<String> = ran(&mut host);
    assert_eq!(runs, ["ended c api", "on b web"], "both groups of a Pod that moves");
    ["a", "b", "c", "other"].into_iter().for_each(|name| host.remove_pod("shop", name));
    let runs: Vec<String> = ran(&mut host);
    assert_eq!(runs, ["ended c web"]);
}

#[test]
fn siblings_are_the_pods_of_all_rollouts_of_a_workload() {
    let replica = |name: &str, hash: &str| {
        pod("shop", name).owned_by("ReplicaSet", &format!("cart-{hash}")).label("pod-template-hash", hash)
    };
    let other = pod("bank", "z").owned_by("ReplicaSet", "cart-7d9f8").label("pod-template-hash", "7d9f8");
    let by_hand = pod("shop", "y").owned_by("ReplicaSet", "cart-7d9f8");
    let mut host =
        Host::with_pods([replica("cart-0", "7d9f8"), replica("cart-1", "66c4b"), other, by_hand, pod("shop", "x")]);
    let names: fn(&Request) -> Result<Outcome> = |request| {
        let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
        let Some(siblings) = pod.siblings()? else { return Ok(Outcome::settled()) };
        let names: Vec<_> = siblings.into_iter().map(|pod| Ok(pod?.name().to_owned())).collect::<Result<_>>()?;
        pod.set_annotation("names", &names.join(" "))?;
        Ok(Outcome::settled())
    };
    run(&mut host, names).assert_writes([Write::set_annotation("shop/cart-0", "names", "cart-0 cart-1")]);
    host.reconcile(names, "shop", "y").assert_writes([Write::set_annotation("shop/y", "names", "y")]);
    host.reconcile(names, "shop", "x").assert_quiet();
}

#[test]
#[should_panic(expected = "shop/cart-0 does not settle")]
fn settle_panics_for_a_plugin_that_wakes_itself_without_end() {
    Host::with_pods([pod("shop", "cart-0")]).settle(|request| {
        let Some(pod) = request.pod() else { return Ok(Outcome::settled()) };
        let runs: u32 = pod.label("runs")?.unwrap_or("0").parse()?;
        pod.set_label("runs", &(runs + 1).to_string())?;
        Ok(Outcome::settled())
    });
}
